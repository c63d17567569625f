// A press is a pointer that goes down and comes up on the same element: what is drawn anew in between loses it, and
// whoever pressed has to press again. So drawing waits until the press is over.

let isDown = false;
const waiting = new Set();

/** Draw now, or after the press that is under way; asked for several times meanwhile, it is done once. */
export function drawUnpressed(draw) {
  if (isDown) waiting.add(draw);
  else draw();
}

function over() {
  isDown = false;
  const due = [...waiting];
  waiting.clear();
  due.forEach((draw) => draw());
}

addEventListener("pointerdown", (event) => { isDown = event.isPrimary && event.button === 0; }, { capture: true });
// What a click does is shown at once, so it counts as over when the click comes; without a click, right after the pointer.
addEventListener("click", () => { isDown = false; }, { capture: true });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(over), { capture: true });
addEventListener("blur", (event) => event.target === window && over());
