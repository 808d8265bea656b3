// The first look of a page: the answer that came along with it is drawn, then the front end is loaded that makes it live.

import chart from "./chart.js";

const page = window.gpuguide, look = document.getElementById("gg-skeleton");

function draw(place, ends) {
  const state = JSON.parse(place.firstElementChild.textContent);
  place.replaceChildren();
  ends.push(chart.render({ el: place, model: { get: (key) => state[key], on() {}, off() {}, send() {} } }));
}

async function charts() {
  const ends = [];
  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) if (isIntersecting) { near.unobserve(target); draw(target, ends); }
  });
  look.over = () => { near.disconnect(); ends.forEach((end) => end()); };
  const places = look.querySelectorAll(".gg-still");
  if (!places.length) return;
  await window.gpuguidePlotly;
  places.forEach((place) => near.observe(place));
  // What is in sight is painted before anything else is begun; a page in the background paints nothing.
  if (![...places].some((place) => place.getBoundingClientRect().top < innerHeight)) return;
  await new Promise((painted) => {
    setTimeout(painted, 400);
    new MutationObserver(() => requestAnimationFrame(() => setTimeout(painted))).observe(look, { subtree: true, attributeFilter: ["data-drawn"] });
  });
}

function begin() {
  // Voila starts when the page has been loaded, which may have happened by now.
  const plain = window.addEventListener;
  window.addEventListener = (kind, listener, ...more) =>
    kind === "load" && document.readyState === "complete" ? setTimeout(listener) : plain.call(window, kind, listener, ...more);
  const script = document.createElement("script");
  script.src = page.main;
  document.body.append(script);
}

charts().catch(() => {}).then(begin);
