//! Follows all links of a site in memory, and checks the markup of each page.

use crate::Site;
use std::collections::BTreeSet;

/// Elements that have no end.
const VOID: [&str; 2] = ["meta", "br"];
/// The elements that pages consist of. None of them loads or runs anything.
const ELEMENTS: [&str; 37] = [
    "html", "head", "meta", "title", "style", "body", "a", "nav", "ol", "ul", "li", "main", "h1", "h2", "h3",
    "p", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "div", "section", "span",
    "strong", "code", "pre", "details", "summary", "footer", "br", "button",
];
const ATTRIBUTES: [&str; 12] = [
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "href",
    "id",
    "scope",
    "data-label",
    "aria-label",
    "aria-sort",
];

/// A tag, with the values of its attributes as they stand.
struct Tag<'a> {
    name: &'a str,
    end: bool,
    attributes: Vec<(&'a str, &'a str)>,
}

/// The addresses that links reach from the index. Fails where a link or a page is not sound.
pub fn all(site: &Site) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec!["index.html".to_owned()];
    while let Some(path) = open.pop() {
        let page = site.page(&path).unwrap_or_else(|| panic!("there is no page {path}"));
        let links = check(&path, &page);
        if reached.insert(path) {
            open.extend(links.into_iter().filter(|link| !reached.contains(link)));
        }
    }
    reached
}

/// Checks a page, and returns where its links lead.
fn check(path: &str, page: &str) -> Vec<String> {
    let tags = tags(page);
    let (mut links, mut parts, mut ids, mut above, mut level) =
        (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new(), 0);
    for tag in &tags {
        assert!(ELEMENTS.contains(&tag.name), "{path}: <{}>", tag.name);
        match (tag.end, VOID.contains(&tag.name)) {
            (true, _) => assert_eq!(above.pop(), Some(tag.name), "{path}: </{}>", tag.name),
            (false, true) => {}
            (false, false) => above.push(tag.name),
        }
        if let Some(digit) =
            tag.name.strip_prefix('h').and_then(|digit| digit.parse::<u32>().ok()).filter(|_| !tag.end)
        {
            assert!(
                digit <= level + 1 && (digit > 1 || level == 0),
                "{path}: a heading {digit} after one of {level}"
            );
            level = digit;
        }
        for (name, value) in &tag.attributes {
            let known = ATTRIBUTES.contains(name) || *name == "aria-current";
            assert!(known, "{path}: the attribute {name} of <{}>", tag.name);
            match *name {
                "id" => assert!(ids.insert(*value), "{path}: the id {value} twice"),
                "href" => match value.strip_prefix('#') {
                    Some(part) => parts.push(part),
                    None => links.push(resolved(path, value)),
                },
                _ => {}
            }
        }
    }
    assert!(above.is_empty() && level > 0, "{path}: {above:?}");
    assert!(parts.iter().all(|part| ids.contains(part)), "{path}: {parts:?}");
    assert_eq!(parts.first(), Some(&"content"), "{path}: the first link skips to the content");
    links
}

/// The address that a link of a page leads to.
fn resolved(path: &str, link: &str) -> String {
    let plain = link.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    assert!(plain && !link.starts_with('/') && !link.is_empty(), "{path}: {link}");
    let mut folders: Vec<&str> = path.split('/').collect();
    folders.pop();
    for part in link.split('/') {
        match part {
            ".." => assert!(folders.pop().is_some(), "{path}: {link} leads out"),
            part => folders.push(part),
        }
    }
    folders.join("/")
}

/// The tags of a page, as a browser without leniency would read them. The style sheet is skipped.
fn tags(page: &str) -> Vec<Tag<'_>> {
    let body = page.strip_prefix("<!DOCTYPE html>").expect("it has a type");
    let mut tags = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "an angle bracket in text: {}", &rest[..at]);
        let end = at + rest[at..].find('>').expect("tags end");
        let inside = &rest[at + 1..end];
        rest = &rest[end + 1..];
        let (closing, inside) = inside.strip_prefix('/').map_or((false, inside), |inside| (true, inside));
        let (name, mut words) = inside.split_once(' ').unwrap_or((inside, ""));
        let mut attributes = Vec::new();
        while !words.is_empty() {
            let (name, value) =
                words.split_once("=\"").unwrap_or_else(|| panic!("an attribute without quotes: {inside}"));
            let (value, after) = value.split_once('"').expect("quotes end");
            assert!(!value.contains(['<', '>', '\'']), "{value}");
            attributes.push((name, value));
            words = after.strip_prefix(' ').unwrap_or(after);
        }
        if name == "style" && !closing {
            rest = &rest[rest.find("</style>").expect("the style sheet ends")..];
        }
        tags.push(Tag { name, end: closing, attributes });
    }
    tags
}
