//! Stacks as a flame graph: one SVG file without dependencies.
//!
//! The file contains a picture for viewers that run no scripts, and a script with all boxes as data. The
//! script draws the boxes anew for each zoom, so that boxes too narrow for the whole picture appear. Names
//! come from the guest: both forms escape them.

use super::stacks::Stack;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The width of the picture in pixels; the script gets the same numbers from here.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
/// The height of title, search and legend.
const HEAD: f64 = 84.0;
/// The height of the line with the details of the box under the pointer.
const FOOT: f64 = 34.0;
/// The narrowest box that is drawn; a zoom widens narrower ones.
const NARROW: f64 = 0.2;
/// The width of a letter in pixels.
const LETTER: f64 = 7.2;
/// The fill of kernel code and modules in the legend; each function has its own shade.
const KERNEL: &str = "rgb(230,120,55)";
const MODULE: &str = "rgb(90,180,230)";
const MATCH: &str = "rgb(220,60,220)";

#[derive(Default)]
struct Node {
    samples: u64,
    /// The callees, by name.
    inner: BTreeMap<String, Node>,
}

/// A node with its position in the picture.
struct PlacedNode {
    name: String,
    depth: usize,
    /// The first sample, and the number of samples.
    start: u64,
    samples: u64,
}

/// A flame graph with search, zoom, a legend and whole names.
pub fn flames(title: &str, stacks: &[Stack]) -> String {
    let mut root = Node::default();
    for stack in stacks {
        let mut node = &mut root;
        node.samples += stack.samples;
        for frame in &stack.frames {
            node = node.inner.entry(frame.name()).or_default();
            node.samples += stack.samples;
        }
    }
    let mut boxes = Vec::new();
    collect("all", &root, 0, 0, &mut boxes);
    let depth = boxes.iter().map(|one| one.depth + 1).max().unwrap_or(1);
    let bottom = HEAD + ROW * depth as f64;
    let mut out = head(title, bottom + FOOT);
    out.push_str("<g id=\"boxes\">\n");
    let all = root.samples.max(1);
    boxes.iter().for_each(|one| draw(&mut out, one, all, bottom));
    out.push_str("</g>\n");
    script(&mut out, &boxes, bottom);
    out.push_str("</svg>\n");
    out
}

fn collect(name: &str, node: &Node, start: u64, depth: usize, boxes: &mut Vec<PlacedNode>) {
    boxes.push(PlacedNode { name: name.to_owned(), depth, start, samples: node.samples });
    let mut at = start;
    for (name, inner) in &node.inner {
        collect(name, inner, at, depth + 1, boxes);
        at += inner.samples;
    }
}

/// Everything but the boxes. The search field shows only where scripts run.
fn head(title: &str, height: f64) -> String {
    let legend = |x: u32, fill: &str, text: &str| {
        format!(
            "<rect x=\"{x}\" y=\"56\" width=\"12\" height=\"12\" fill=\"{fill}\"/><text x=\"{}\" y=\"66\">{text}</text>",
            x + 17
        )
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <style>#boxes g {{ cursor: pointer }} #boxes rect {{ stroke: #fff; stroke-width: .5 }} \
         #boxes g:hover rect {{ stroke: #000; stroke-width: 1 }} #reset {{ cursor: pointer; fill: #06c; text-decoration: underline }} \
         .hidden {{ display: none }} input {{ width: 100%; box-sizing: border-box; font: 12px monospace }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fdfdf6\"/>\n\
         <text x=\"{}\" y=\"24\" font-size=\"16\" text-anchor=\"middle\">{}</text>\n\
         <g id=\"legend\">{}{}{}<text x=\"380\" y=\"66\">callees lie on callers; a box is as wide as its share of samples</text></g>\n\
         <text id=\"reset\" class=\"hidden\" x=\"10\" y=\"40\">reset zoom</text>\n\
         <foreignObject id=\"search\" class=\"hidden\" x=\"930\" y=\"10\" width=\"260\" height=\"26\">\
         <input xmlns=\"http://www.w3.org/1999/xhtml\" type=\"search\" placeholder=\"search (regular expression)\"/>\
         </foreignObject>\n\
         <text id=\"matched\" x=\"1190\" y=\"66\" text-anchor=\"end\"> </text>\n\
         <text id=\"details\" x=\"10\" y=\"{}\"> </text>\n",
        WIDTH / 2.0,
        escape(title),
        legend(10, KERNEL, "kernel"),
        legend(100, MODULE, "[module]"),
        legend(205, MATCH, "matches the search"),
        height - 12.0,
    )
}

/// Draws a box of the picture.
fn draw(out: &mut String, one: &PlacedNode, all: u64, bottom: f64) {
    let scale = WIDTH / all as f64;
    let width = one.samples as f64 * scale;
    if width < NARROW {
        return;
    }
    let (x, y) = (one.start as f64 * scale, bottom - ROW * (one.depth + 1) as f64);
    let _ = writeln!(
        out,
        "<g><title>{}: {} samples, {:.2} %</title><rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{:.1}\" \
         fill=\"{}\"/><text x=\"{:.2}\" y=\"{:.1}\">{}</text></g>",
        escape(&one.name),
        one.samples,
        100.0 * one.samples as f64 / all as f64,
        ROW - 1.0,
        color(&one.name),
        x + 3.0,
        y + 12.5,
        escape(&cut(&one.name, width)),
    );
}

/// As much of a name as fits on a box; the box's title has the whole name.
fn cut(name: &str, width: f64) -> String {
    let fits = ((width - 6.0) / LETTER).max(0.0) as usize;
    match name.chars().count() {
        _ if fits < 3 => String::new(),
        letters if letters <= fits => name.to_owned(),
        _ => name.chars().take(fits - 1).chain(['…']).collect(),
    }
}

/// The boxes as data, and the script that draws them.
fn script(out: &mut String, boxes: &[PlacedNode], bottom: f64) {
    let mut names: Vec<&str> = boxes.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let number = |name: &str| names.binary_search(&name).unwrap_or(0);
    let rows: Vec<_> =
        boxes.iter().map(|one| json!([number(&one.name), one.depth, one.start, one.samples])).collect();
    let data = json!({
        "width": WIDTH, "row": ROW, "bottom": bottom, "narrow": NARROW, "letter": LETTER, "match": MATCH,
        "names": names, "colors": names.iter().map(|name| color(name)).collect::<Vec<_>>(), "boxes": rows,
    });
    // No character of a name may end the script or the data.
    let data = data.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
    let _ =
        write!(out, "<script><![CDATA[\nconst data = {data};\n{}]]></script>\n", include_str!("flames.js"));
}

/// The fixed shade of a name: warm for the kernel, blue for modules.
fn color(name: &str) -> String {
    let hash = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let (red, green) = (205 + hash % 50, 60 + (hash >> 8) % 130);
    if name.contains('[') {
        format!("rgb(90,{},{red})", green + 60)
    } else {
        format!("rgb({red},{green},55)")
    }
}

/// Text for XML, which cannot contain control characters.
fn escape(text: &str) -> String {
    let text = text.replace(|c: char| c.is_control(), "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::stacks::{Frame, samples};
    use super::*;

    #[test]
    fn the_picture_needs_no_script() {
        let svg = flames("kernel 6.1 & more", &samples());
        insta::assert_snapshot!(svg.split("<script>").next().unwrap());
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn the_script_has_search_and_reset() {
        let svg = flames("kernel", &samples());
        assert_eq!(svg.matches("<script>").count(), 1);
        for id in ["search", "reset", "legend", "matched", "details"] {
            assert!(svg.contains(&format!("id=\"{id}\"")), "{id}");
        }
        for id in ["search", "reset", "matched", "details"] {
            assert!(include_str!("flames.js").contains(&format!("byId(\"{id}\")")), "{id}");
        }
    }

    #[test]
    fn names_are_whole_however_narrow_their_boxes_are() {
        let name = "a_function_whose_name_is_far_longer_than_its_box_is_wide";
        let stack = |function: &str, samples| Stack {
            frames: vec![Frame { function: function.to_owned(), ..Frame::default() }],
            samples,
            cpu: 0,
            times: Vec::new(),
        };
        let svg = flames("kernel", &[stack(name, 1), stack("other", 100)]);
        assert!(svg.contains(&format!("<title>{name}: 1 samples, 0.99 %</title>")));
        // The box is too narrow for the picture; a zoom draws it.
        let svg = flames("kernel", &[stack(name, 1), stack("other", 100_000)]);
        let (picture, script) = svg.split_once("<script>").unwrap();
        assert!(!picture.contains(name) && script.contains(&format!("\"{name}\"")));
    }

    #[test]
    fn names_of_guests_are_text() {
        let frame = Frame { function: "</script>]]>\u{1}<a onclick=\"x()\">".to_owned(), ..Frame::default() };
        let stack = Stack { frames: vec![frame], samples: 1, cpu: 0, times: Vec::new() };
        let svg = flames("kernel", &[stack]);
        assert_eq!(svg.matches("</script>").count(), 1);
        assert_eq!(svg.matches("]]>").count(), 1);
        assert!(!svg.contains("<a ") && !svg.contains('\u{1}'));
    }

    #[test]
    fn names_are_cut_where_the_box_ends() {
        assert_eq!(cut("abcdef", 6.0 + 4.5 * LETTER), "abc…");
        assert_eq!(cut("abcdef", 10.0), "");
        assert_eq!(cut("abc", 500.0), "abc");
    }
}
