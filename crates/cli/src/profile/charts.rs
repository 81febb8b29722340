//! Stacks as pictures: a flame graph (SVG), folded lines for other tools, and a profile for profiler.firefox.com.

use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Pixels of the picture.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const HEAD: f64 = 60.0;
/// Narrower boxes are not drawn.
const NARROW: f64 = 0.2;
/// Pixels of a letter.
const LETTER: f64 = 7.2;

/// A stack that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Names, the outermost first.
    pub names: Vec<String>,
    /// How often.
    pub samples: u64,
    /// On which CPU.
    pub cpu: u64,
    /// When, in microseconds; perhaps fewer than there were samples.
    pub times: Vec<u64>,
}

/// `outer;inner COUNT` lines, sorted: what flame graph tools read.
pub fn folded(stacks: &[Stack]) -> String {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks {
        let names: Vec<String> = stack.names.iter().map(|name| name.replace(';', ":")).collect();
        *sums.entry(names.join(";")).or_default() += stack.samples;
    }
    sums.iter().fold(String::new(), |text, (stack, count)| text + &format!("{stack} {count}\n"))
}

#[derive(Default)]
struct Node<'a> {
    samples: u64,
    inner: BTreeMap<&'a str, Node<'a>>,
}

impl Node<'_> {
    fn depth(&self) -> usize {
        1 + self.inner.values().map(Node::depth).max().unwrap_or(0)
    }
}

/// A flame graph that needs nothing else: a click on a box shows it over the whole width, and what is below it.
pub fn flames(title: &str, stacks: &[Stack]) -> String {
    let mut root = Node::default();
    for stack in stacks {
        let mut node = &mut root;
        node.samples += stack.samples;
        for name in &stack.names {
            node = node.inner.entry(name).or_default();
            node.samples += stack.samples;
        }
    }
    let height = HEAD + ROW * root.depth() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n<style>rect {{ stroke: #fff; stroke-width: .5 }} g:hover rect \
         {{ stroke: #000 }} g {{ cursor: pointer }}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fdfdf6\"/>\n\
         <text x=\"{}\" y=\"24\" font-size=\"16\" text-anchor=\"middle\">{}</text>\n\
         <text id=\"told\" x=\"10\" y=\"{}\"> </text>\n",
        WIDTH / 2.0,
        escape(title),
        height - 10.0,
    );
    let all = root.samples.max(1);
    draw(&mut out, "all", &root, 0, 0, all, height - 30.0);
    out.push_str(SCRIPT);
    out.push_str("</svg>\n");
    out
}

/// Draws a box and what is on it. `data-x` and `data-w` are in samples, for the script.
fn draw(out: &mut String, name: &str, node: &Node<'_>, start: u64, depth: usize, all: u64, bottom: f64) {
    let scale = WIDTH / all as f64;
    let width = node.samples as f64 * scale;
    if width < NARROW {
        return;
    }
    let (x, y) = (start as f64 * scale, bottom - ROW * (depth + 1) as f64);
    let name = escape(name);
    let share = 100.0 * node.samples as f64 / all as f64;
    let _ = writeln!(
        out,
        "<g data-x=\"{start}\" data-w=\"{}\" data-d=\"{depth}\" data-n=\"{name}\"><title>{name}: {} samples, {share:.2} %\
         </title><rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{:.1}\" fill=\"{}\"/><text x=\"{:.2}\" \
         y=\"{:.1}\">{}</text></g>",
        node.samples,
        node.samples,
        ROW - 1.0,
        color(&name),
        x + 3.0,
        y + 12.5,
        cut(&name, width),
    );
    let mut at = start;
    for (name, inner) in &node.inner {
        draw(out, name, inner, at, depth + 1, all, bottom);
        at += inner.samples;
    }
}

/// As much of an escaped name as fits; half an entity is none.
fn cut(name: &str, width: f64) -> &str {
    let fits = ((width - 6.0) / LETTER).max(0.0) as usize;
    match name.char_indices().nth(fits) {
        _ if fits < 3 => "",
        None => name,
        Some((end, _)) => {
            let text = &name[..end];
            text.rfind('&').filter(|&at| !text[at..].contains(';')).map_or(text, |at| &text[..at])
        }
    }
}

/// A warm color that a name always has.
fn color(name: &str) -> String {
    let hash = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let module = name.contains('[');
    let (red, green) = (205 + hash % 50, 60 + (hash >> 8) % 130);
    if module { format!("rgb(90,{},{red})", green + 60) } else { format!("rgb({red},{green},55)") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const SCRIPT: &str = r##"<script><![CDATA[
const boxes = [...document.querySelectorAll("g")].map(g => ({ g, x: +g.dataset.x, w: +g.dataset.w, d: +g.dataset.d,
  n: g.dataset.n, rect: g.querySelector("rect"), text: g.querySelector("text") }));
const told = document.getElementById("told");
function zoom(to) {
  const scale = 1200 / to.w;
  for (const b of boxes) {
    const around = b.d <= to.d && b.x <= to.x && b.x + b.w >= to.x + to.w;
    const inside = b.d > to.d && b.x >= to.x && b.x + b.w <= to.x + to.w;
    b.g.style.display = around || inside ? "" : "none";
    const x = around ? 0 : (b.x - to.x) * scale, w = around ? 1200 : b.w * scale, fits = Math.floor((w - 6) / 7.2);
    b.rect.setAttribute("x", x); b.rect.setAttribute("width", Math.max(w, 0));
    b.rect.setAttribute("opacity", around && b !== to ? 0.5 : 1);
    b.text.setAttribute("x", x + 3); b.text.textContent = fits < 3 ? "" : b.n.slice(0, fits);
  }
}
for (const b of boxes) {
  b.g.addEventListener("click", () => zoom(b));
  b.g.addEventListener("mouseover", () => { told.textContent = b.g.querySelector("title").textContent; });
}
]]></script>
"##;

/// A profile in the processed format of profiler.firefox.com, one track for each CPU.
pub fn firefox(product: &str, stacks: &[Stack]) -> Value {
    let mut cpus: Vec<u64> = stacks.iter().map(|stack| stack.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let threads: Vec<Value> = cpus.iter().map(|&cpu| thread(cpu, stacks)).collect();
    json!({
        "meta": {
            "categories": [
                { "name": "Other", "color": "grey", "subcategories": ["Other"] },
                { "name": "Kernel", "color": "orange", "subcategories": ["Other"] },
                { "name": "Module", "color": "blue", "subcategories": ["Other"] },
            ],
            "debug": false,
            "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
            "interval": 1.0,
            "markerSchema": [],
            "preprocessedProfileVersion": 49,
            "processType": 0,
            "product": product,
            "sampleUnits": { "eventDelay": "ms", "threadCPUDelta": "µs", "time": "ms" },
            "startTime": 0,
            "symbolicated": true,
            "pausedRanges": [],
            "version": 24,
            "usesOnlyOneStackType": true,
            "doesNotUseFrameImplementation": true,
            "sourceCodeIsNotOnSearchfox": true,
        },
        "libs": [], "threads": threads, "pages": [], "profilerOverhead": [], "counters": [],
    })
}

fn thread(cpu: u64, stacks: &[Stack]) -> Value {
    let mut names: Vec<&str> = Vec::new();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    // Stacks by what they are called from, and the function.
    let mut table: Vec<(Option<usize>, usize)> = Vec::new();
    let mut known: HashMap<(Option<usize>, usize), usize> = HashMap::new();
    let mut samples: Vec<(u64, usize)> = Vec::new();
    for stack in stacks.iter().filter(|stack| stack.cpu == cpu) {
        let mut prefix = None;
        for name in &stack.names {
            let function = *numbers.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() - 1
            });
            prefix = Some(*known.entry((prefix, function)).or_insert_with(|| {
                table.push((prefix, function));
                table.len() - 1
            }));
        }
        samples.extend(
            prefix
                .into_iter()
                .flat_map(|stack_number| stack.times.iter().map(move |&time| (time, stack_number))),
        );
    }
    samples.sort_unstable();
    let count = names.len();
    let category: Vec<usize> = names.iter().map(|name| if name.contains('[') { 2 } else { 1 }).collect();
    let nothing = vec![Value::Null; count];
    json!({
        "name": format!("CPU {cpu}"), "isMainThread": true, "processType": "default", "processName": "kernel",
        "processStartupTime": 0, "processShutdownTime": null, "registerTime": 0, "unregisterTime": null,
        "pausedRanges": [], "pid": cpu.to_string(), "tid": cpu.to_string(),
        "frameTable": {
            "length": count, "address": vec![-1; count], "inlineDepth": vec![0; count], "category": category,
            "subcategory": vec![0; count], "func": (0..count).collect::<Vec<_>>(), "nativeSymbol": nothing,
            "innerWindowID": nothing, "implementation": nothing, "line": nothing, "column": nothing,
            "optimizations": nothing,
        },
        "funcTable": {
            "length": count, "name": (0..count).collect::<Vec<_>>(), "isJS": vec![false; count],
            "relevantForJS": vec![false; count], "resource": vec![-1; count], "fileName": nothing,
            "lineNumber": nothing, "columnNumber": nothing,
        },
        "markers": {
            "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
        },
        "nativeSymbols": { "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [] },
        "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
        "samples": {
            "length": samples.len(), "weightType": "samples", "weight": null,
            "stack": samples.iter().map(|sample| sample.1).collect::<Vec<_>>(),
            "time": samples.iter().map(|sample| sample.0 as f64 / 1000.0).collect::<Vec<_>>(),
        },
        "stackTable": {
            "length": table.len(),
            "prefix": table.iter().map(|entry| entry.0).collect::<Vec<_>>(),
            "frame": table.iter().map(|entry| entry.1).collect::<Vec<_>>(),
            "category": table.iter().map(|entry| category[entry.1]).collect::<Vec<_>>(),
            "subcategory": vec![0; table.len()],
        },
        "stringArray": names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> Vec<Stack> {
        let stack = |names: &str, samples, cpu, times: &[u64]| Stack {
            names: names.split(' ').map(str::to_owned).collect(),
            samples,
            cpu,
            times: times.to_vec(),
        };
        vec![
            stack("do_syscall_64 ksys_read vfs_read", 3, 0, &[100, 2000, 7000]),
            stack("do_syscall_64 ksys_read", 1, 1, &[5]),
            stack("do_syscall_64 e1000_<a&b>_[e1000]", 2, 1, &[300, 250]),
        ]
    }

    #[test]
    fn folded_stacks_are_sums() {
        insta::assert_snapshot!(folded(&stacks()));
    }

    #[test]
    fn flame_graphs_are_pictures() {
        let svg = flames("kernel 6.1 & more", &stacks());
        insta::assert_snapshot!(svg.split("<script>").next().unwrap());
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn firefox_gets_a_track_for_each_cpu() {
        insta::assert_json_snapshot!(firefox("kernel", &stacks()));
    }

    #[test]
    fn names_are_cut_where_they_may_be() {
        assert_eq!(cut("a&lt;b", 6.0 + 3.0 * LETTER), "a");
        assert_eq!(cut("abcdef", 6.0 + 4.5 * LETTER), "abcd");
        assert_eq!(cut("abcdef", 10.0), "");
        assert_eq!(cut("abc", 500.0), "abc");
    }
}
