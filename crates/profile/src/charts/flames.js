// Draws the boxes of `data`, for the whole picture or for one box over the whole width.
const SVG = "http://www.w3.org/2000/svg";
const byId = id => document.getElementById(id);
const [picture, reset, search, matched, details] =
  [byId("boxes"), byId("reset"), byId("search"), byId("matched"), byId("details")];
const boxes = data.boxes.map(([name, depth, start, samples]) => ({ name, depth, start, end: start + samples, samples }));
const all = Math.max(boxes[0].samples, 1);
let shown = boxes[0];
let matches = null;

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}

function cut(name, width) {
  const letters = [...name], fits = Math.floor((width - 6) / data.letter);
  return fits < 3 ? "" : letters.length <= fits ? name : letters.slice(0, fits - 1).join("") + "…";
}

function describe(box) {
  const share = of => (100 * box.samples / of).toFixed(2);
  const zoomed = shown === boxes[0] ? "" : `, ${share(Math.max(shown.samples, 1))} % of what is shown`;
  return `${data.names[box.name]}: ${box.samples} samples, ${share(all)} %${zoomed}`;
}

// The callers of the shown box keep the whole width, dimmed; what lies beside it is left out.
function draw() {
  const scale = data.width / Math.max(shown.samples, 1), made = document.createDocumentFragment();
  for (const box of boxes) {
    const caller = box.depth < shown.depth && box.start <= shown.start && box.end >= shown.end;
    const inside = box.depth >= shown.depth && box.start >= shown.start && box.end <= shown.end;
    if (!caller && !inside) continue;
    const x = caller ? 0 : (box.start - shown.start) * scale, width = caller ? data.width : box.samples * scale;
    if (width < data.narrow) continue;
    const y = data.bottom - data.row * (box.depth + 1), name = data.names[box.name];
    const fill = matches && matches[box.name] ? data.match : data.colors[box.name];
    const group = element("g", caller ? { opacity: 0.5 } : {});
    group.append(element("title", {}, describe(box)),
      element("rect", { x, y, width, height: data.row - 1, fill }),
      element("text", { x: x + 3, y: y + 12.5 }, cut(name, width)));
    group.addEventListener("click", () => zoom(box));
    group.addEventListener("mouseover", () => { details.textContent = describe(box); });
    group.addEventListener("mouseout", () => { details.textContent = " "; });
    made.append(group);
  }
  picture.replaceChildren(made);
  reportMatches();
}

function zoom(box) {
  shown = box;
  reset.classList.toggle("hidden", box === boxes[0]);
  draw();
}

// The samples of what is shown that have a match on their stack. Callers come before callees, so the outermost match counts.
function reportMatches() {
  let sum = 0, counted = -1;
  for (const box of matches ? boxes : []) {
    const inside = box.depth >= shown.depth && box.start >= shown.start && box.end <= shown.end;
    if (!inside || !matches[box.name] || box.start < counted) continue;
    sum += box.samples;
    counted = box.end;
  }
  const share = (100 * sum / Math.max(shown.samples, 1)).toFixed(2);
  matched.textContent = matches ? `matched: ${sum} samples, ${share} %` : " ";
}

function find(text) {
  let fits = name => name.includes(text);
  try {
    const pattern = new RegExp(text, "i");
    fits = name => pattern.test(name);
  } catch { /* Not a regular expression yet: plain text. */ }
  matches = text ? data.names.map(fits) : null;
  draw();
}

reset.addEventListener("click", () => zoom(boxes[0]));
document.addEventListener("keydown", event => { if (event.key === "Escape") zoom(boxes[0]); });
search.firstElementChild.addEventListener("input", event => find(event.target.value));
search.classList.remove("hidden");
draw();
