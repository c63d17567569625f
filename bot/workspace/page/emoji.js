// The short names people and apps use most. Others are shown as they were written, `:name:`.

const TABLE = `
+1 👍 -1 👎 thumbsup 👍 thumbsdown 👎 ok_hand 👌 wave 👋 clap 👏 raised_hands 🙌 raised_hand ✋ hand ✋ pray 🙏 muscle 💪
point_right 👉 point_left 👈 point_up ☝️ point_down 👇 handshake 🤝 eyes 👀 brain 🧠 bust_in_silhouette 👤 busts_in_silhouette 👥
smile 😄 smiley 😃 grin 😁 grinning 😀 slightly_smiling_face 🙂 joy 😂 wink 😉 blush 😊 heart_eyes 😍 thinking_face 🤔 neutral_face 😐
sob 😭 cry 😢 scream 😱 rage 😡 sweat_smile 😅 sunglasses 😎 partying_face 🥳 facepalm 🤦 shrug 🤷 skull 💀 ghost 👻 robot_face 🤖
heart ❤️ broken_heart 💔 fire 🔥 sparkles ✨ star ⭐ star2 🌟 zap ⚡ boom 💥 tada 🎉 confetti_ball 🎊 rocket 🚀 ship 🚢 package 📦
white_check_mark ✅ heavy_check_mark ✔️ ballot_box_with_check ☑️ x ❌ negative_squared_cross_mark ❎ heavy_multiplication_x ✖️ no_entry ⛔
no_entry_sign 🚫 octagonal_sign 🛑 warning ⚠️ rotating_light 🚨 construction 🚧 exclamation ❗ question ❓ grey_question ❔ grey_exclamation ❕
bangbang ‼️ red_circle 🔴 large_orange_circle 🟠 large_yellow_circle 🟡 large_green_circle 🟢 large_blue_circle 🔵 large_purple_circle 🟣
white_circle ⚪ black_circle ⚫ white_large_square ⬜ black_large_square ⬛ large_green_square 🟩 large_red_square 🟥
hourglass ⌛ hourglass_flowing_sand ⏳ stopwatch ⏱️ timer_clock ⏲️ alarm_clock ⏰ clock1 🕐 clock3 🕒 clock9 🕘 watch ⌚ calendar 📆 date 📅
arrow_right ➡️ arrow_left ⬅️ arrow_up ⬆️ arrow_down ⬇️ arrow_forward ▶️ arrow_heading_up ⤴️ arrow_heading_down ⤵️ arrows_counterclockwise 🔄
repeat 🔁 rewind ⏪ fast_forward ⏩ double_vertical_bar ⏸️ pause_button ⏸️ black_square_for_stop ⏹️ track_next ⏭️ leftwards_arrow_with_hook ↩️
information_source ℹ️ bulb 💡 memo 📝 pencil 📝 pencil2 ✏️ clipboard 📋 bookmark 🔖 label 🏷️ link 🔗 paperclip 📎 pushpin 📌 lock 🔒 unlock 🔓
key 🔑 closed_lock_with_key 🔐 mag 🔍 bell 🔔 no_bell 🔕 loudspeaker 📢 mega 📣 speech_balloon 💬 thought_balloon 💭 email ✉️ envelope ✉️
inbox_tray 📥 outbox_tray 📤 page_facing_up 📄 file_folder 📁 open_file_folder 📂 floppy_disk 💾 computer 💻 desktop_computer 🖥️ iphone 📱
gear ⚙️ wrench 🔧 hammer 🔨 hammer_and_wrench 🛠️ toolbox 🧰 test_tube 🧪 microscope 🔬 telescope 🔭 satellite 🛰️ electric_plug 🔌 battery 🔋
chart_with_upwards_trend 📈 chart_with_downwards_trend 📉 bar_chart 📊 moneybag 💰 dollar 💵 credit_card 💳 gift 🎁 trophy 🏆 medal 🏅
bug 🐛 beetle 🐞 snail 🐌 turtle 🐢 dog 🐶 cat 🐱 unicorn_face 🦄 penguin 🐧 whale 🐳 octopus 🐙 bee 🐝 butterfly 🦋 seedling 🌱 evergreen_tree 🌲
earth_africa 🌍 earth_americas 🌎 globe_with_meridians 🌐 sunny ☀️ cloud ☁️ umbrella ☔ snowflake ❄️ rainbow 🌈 ocean 🌊 mountain ⛰️ coffee ☕
one 1️⃣ two 2️⃣ three 3️⃣ four 4️⃣ five 5️⃣ six 6️⃣ seven 7️⃣ eight 8️⃣ nine 9️⃣ zero 0️⃣ 100 💯 heavy_plus_sign ➕ heavy_minus_sign ➖ recycle ♻️
ambulance 🚑 fire_engine 🚒 police_car 🚓 checkered_flag 🏁 triangular_flag_on_post 🚩 white_flag 🏳️ traffic_light 🚥 vertical_traffic_light 🚦
new 🆕 ok 🆗 up 🆙 sos 🆘 soon 🔜 end 🔚 back 🔙 zzz 💤 dart 🎯 crystal_ball 🔮 art 🎨 books 📚 book 📖 newspaper 📰 shield 🛡️ broom 🧹
`;

const words = TABLE.trim().split(/\s+/);
const BY_NAME = new Map();
for (let at = 0; at + 1 < words.length; at += 2) BY_NAME.set(words[at], words[at + 1]);

/** The character for `name`, or null when this page does not know it. */
export function emoji(name) {
  return BY_NAME.get(String(name).replace(/::skin-tone-\d$/, "")) ?? null;
}

/** `:eyes: seen` as text with the character in place of each known name. */
export function withEmoji(text) {
  return text.replace(/:([a-z0-9_+'-]+):/g, (written, name) => emoji(name) ?? written);
}

/** What the reaction menu offers, most used first. */
export const REACTIONS = [
  "white_check_mark", "eyes", "+1", "-1", "heart", "tada", "pray", "raised_hands",
  "fire", "rocket", "warning", "x", "question", "thinking_face", "joy", "hourglass_flowing_sand",
];
