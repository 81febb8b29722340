//! The pages in a browser: what they load, how they look in narrow and wide windows, light, dark and printed, and what a
//! keyboard reaches.

use crate::results;
use crate::web::{Served, crawl};
use guardrail_tests::browser::Browser;
use guardrail_tests::picture::Picture;
use serde_json::Value;

/// The kinds of pages, by the beginnings of their addresses.
const KINDS: [&str; 4] = ["by-", "compare/", "run/", "survey/"];

/// Elements whose text has too little contrast to what is behind it, as WCAG AA has it.
const FAINT: &str = r"(() => {
  const parts = (color) => color.match(/[\d.]+/g).map(Number);
  const bright = (color) => {
    const [r, g, b] = parts(color).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor, all = parts(color);
      if (all.length < 4 || all[3] > 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [one, other] = [bright(getComputedStyle(e).color), bright(behind(e))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < 4.5) faint.push(e.tagName + ' ' + contrast.toFixed(2) + ' ' + e.textContent.slice(0, 40));
  }
  return faint;
})()";

/// What a keyboard should reach, in this order: the texts of links and of what can be opened.
const REACHABLE: &str = "[...document.querySelectorAll('a[href], summary')].map((e) => e.textContent)";

/// The element with the focus: its text, whether an outline shows it, and whether it is in the window.
const FOCUSED: &str = r"(() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e), box = e.getBoundingClientRect();
  return {
    text: e.textContent,
    outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    visible: box.width > 0 && box.left >= 0 && box.top >= 0 && box.top < innerHeight && box.left < innerWidth,
  };
})()";

/// The levels of the headings, in order.
const HEADINGS: &str = "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((e) => Number(e.tagName[1]))";

/// One page of each kind, and the race whose names are markup and long.
fn chosen(served: &Served) -> Vec<String> {
    let pages = crawl(served);
    let mut all = vec!["index.html".to_owned()];
    all.extend(KINDS.iter().map(|kind| pages.keys().find(|path| path.starts_with(kind)).unwrap().clone()));
    let with = |text: &str| {
        pages.iter().filter(|(_, page)| page.contains(text)).map(|(path, _)| path.clone()).collect()
    };
    let races: Vec<String> = with("class=\"timeline\"");
    let frees: Vec<String> = with("Freed by");
    assert!(races.len() >= 2 && !frees.is_empty(), "{races:?} {frees:?}");
    all.extend(races);
    all.extend(frees.into_iter().take(1));
    all.sort();
    all.dedup();
    all
}

#[test]
fn pages_load_nothing_and_run_nothing() {
    let folder = results();
    let served = Served::start(folder.path());
    let mut browser = Browser::start().unwrap();
    for path in crawl(&served).into_keys() {
        browser.open(&served.address(&path)).unwrap();
        let title = browser.value("document.title").unwrap();
        assert!(
            title.as_str().is_some_and(|title| title.ends_with("guardrail") && !title.starts_with("caught")),
            "{title}"
        );
        let strange =
            browser.value("document.querySelectorAll('script, img, iframe, link, object, [onerror]').length");
        assert_eq!(strange.unwrap(), 0, "{path}");
        let mut loaded = Vec::new();
        for event in browser.events() {
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => loaded.push(event["params"]["request"]["url"].clone()),
                // A policy that blocks something says so here.
                "Log.entryAdded" | "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" => {
                    panic!("{path}: {event}")
                }
                _ => {}
            }
        }
        assert_eq!(loaded, [Value::from(served.address(&path))], "{path}");
    }
    // The same page without scripts at all.
    let text = "document.documentElement.innerText";
    let path = served.address("index.html");
    browser.open(&path).unwrap();
    let with = browser.value(text).unwrap();
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": true })).unwrap();
    browser.open(&path).unwrap();
    let document = browser.call("DOM.getDocument", serde_json::json!({})).unwrap();
    let markup = serde_json::json!({ "nodeId": document["root"]["nodeId"] });
    let markup = browser.call("DOM.getOuterHTML", markup).unwrap();
    let markup = markup["outerHTML"].as_str().unwrap_or_default().to_owned();
    let heading = with.as_str().and_then(|text| text.lines().next()).unwrap_or_default();
    assert!(!heading.is_empty() && markup.contains(heading), "{heading}: {markup}");
}

#[test]
fn pages_fit_narrow_and_wide_windows_in_both_schemes_and_on_paper() {
    let folder = results();
    let served = Served::start(folder.path());
    let mut browser = Browser::start().unwrap();
    for path in chosen(&served) {
        let mut backs = Vec::new();
        for (width, scheme, media) in [
            (400, "light", ""),
            (400, "dark", ""),
            (1280, "light", ""),
            (1280, "dark", ""),
            (720, "light", "print"),
        ] {
            let at = format!("{path}, {width} pixels, {scheme} {media}");
            browser.look(width, scheme, media).unwrap();
            browser.open(&served.address(&path)).unwrap();
            let wide = browser.value("document.documentElement.scrollWidth").unwrap();
            assert!(wide.as_u64().is_some_and(|wide| wide <= width.into()), "{at}: {wide} pixels are needed");
            assert_eq!(browser.value(FAINT).unwrap(), serde_json::json!([]), "{at}");
            let picture = browser.picture().unwrap();
            keep(&path, width, scheme, media, &picture);
            let picture = Picture::decode(&picture).unwrap();
            assert_eq!((picture.width, picture.height), (width as usize, 900), "{at}");
            // Text covers a few percent of the upper half, and is not spread over all of it.
            let drawn = picture.drawn(0..450);
            assert!((0.01..0.6).contains(&drawn), "{at}: {drawn}");
            backs.push(picture.at(2, 2).map(u16::from).iter().sum::<u16>());
            if media == "print" {
                let shown =
                    browser.value("getComputedStyle(document.querySelector('footer')).display").unwrap();
                assert_eq!(shown, "none", "{at}");
            }
        }
        let [light, dark] = [backs[0], backs[1]];
        assert!(light > 700 && dark < 150 && backs[2..] == [light, dark, light], "{path}: {backs:?}");
    }
}

/// Keeps a picture for a look, where a folder is named.
fn keep(path: &str, width: u32, scheme: &str, media: &str, picture: &[u8]) {
    if let Ok(folder) = std::env::var("GUARDRAIL_TEST_PICTURES") {
        let name = format!("{}-{width}-{scheme}{media}.png", path.replace('/', "-"));
        std::fs::write(std::path::Path::new(&folder).join(name), picture).unwrap();
    }
}

#[test]
fn a_keyboard_reaches_everything_in_order() {
    let folder = results();
    let served = Served::start(folder.path());
    let mut browser = Browser::start().unwrap();
    for path in chosen(&served) {
        for width in [400, 1280] {
            browser.look(width, "light", "").unwrap();
            browser.open(&served.address(&path)).unwrap();
            let wanted = browser.value(REACHABLE).unwrap();
            let wanted = wanted.as_array().unwrap();
            for text in wanted {
                assert!(
                    text.as_str().is_some_and(|text| !text.trim().is_empty()),
                    "{path}: a link without text"
                );
                browser.press("Tab").unwrap();
                let at = browser.value(FOCUSED).unwrap();
                assert_eq!(at["text"], *text, "{path}, {width} pixels");
                assert!(at["outlined"] == true && at["visible"] == true, "{path}, {width} pixels: {at}");
            }
            let levels = browser.value(HEADINGS).unwrap();
            let levels: Vec<u64> = levels.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
            let steps = levels.windows(2).all(|pair| pair[1] <= pair[0] + 1);
            assert!(
                levels.first() == Some(&1)
                    && steps
                    && levels.iter().filter(|level| **level == 1).count() == 1,
                "{path}: {levels:?}"
            );
        }
        // The first link leads past what stands above the content.
        browser.open(&served.address(&path)).unwrap();
        browser.press("Tab").unwrap();
        browser.press("Enter").unwrap();
        assert_eq!(browser.value("location.hash").unwrap(), "#content", "{path}");
    }
}
