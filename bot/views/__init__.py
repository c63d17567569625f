"""Views: the modals in which people fill something in, from the button that opens one to what was submitted.

Each kind of view (`bot.views.kinds`) answers three questions, and knows nothing of Bolt or of the Web API:

- *open*: what is shown to whoever pressed? A database read and nothing else: it persists nothing, and `Views` calls
  `views.open` at once, since a trigger lives for three seconds. What cannot be opened is said to that person only.
- *check*: is what was submitted right, and is its prompt still open? Asked before anything is stored and without
  network, so that a refusal stands in the modal, at the field, and spends no key. Who somebody is cannot be looked
  up here; what no lookup could allow is refused, the rest is decided when the submission is carried out.
- *submit*: what is done with a submission that was taken, as a row of the inbox, like with any message or press.

A view carries ids only (`private_metadata`: the prompt and its nonce, the person, the page). The key of a submission
is `view:<team>:<view id>`: sent twice, it counts once. The pages of a long form are rows of the inbox too, found by
the keys that the next page carries; so a crash between two pages loses nothing.
"""
