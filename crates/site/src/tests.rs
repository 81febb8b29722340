//! Whole sites, made from small reports.

use crate::folder::Folder;
use crate::html::STYLE;
use crate::read;
use crate::{Site, SiteError};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

mod crawl;
mod served;

/// The reports and the survey of the fixtures, by their places; each is written an hour after the one before.
const FIXTURES: [(&str, &str); 5] = [
    ("uaf-timer/report.json", include_str!("../fixtures/uaf-timer/report.json")),
    ("race-process-timer/report.json", include_str!("../fixtures/race-process-timer/report.json")),
    ("uaf-timer-next/report.json", include_str!("../fixtures/uaf-timer-next/report.json")),
    ("survey/survey.json", include_str!("../fixtures/survey/survey.json")),
    ("survey/table.json", include_str!("../fixtures/survey/table.json")),
];

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    for (number, (name, text)) in files.iter().enumerate() {
        put(temp.path(), name, text.as_bytes());
        let written = UNIX_EPOCH + Duration::from_secs(1_790_000_000 + 3600 * number as u64);
        set_written(&temp.path().join(name), written);
    }
    temp
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let file = folder.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, bytes).unwrap();
}

fn set_written(file: &Path, time: SystemTime) {
    File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
}

/// The site of a folder, by a name that does not depend on where it is.
fn site_of(folder: &Path) -> Site {
    Site::of("results".into(), read::read(&Folder::open(folder).unwrap()))
}

/// A report with all its text replaced by what would be markup. Words that the formats fix stay.
fn hostile(text: &str) -> String {
    const MARKUP: &str = "<script>alert(1)</script>\"' onload='x' &amp; \u{202e}\u{1b}[2J";
    fn replace(value: &mut Value, name: &str) {
        match value {
            Value::String(text)
                if !["schema", "severity", "baseline", "state", "before", "now"].contains(&name) =>
            {
                *text = format!("{MARKUP}{text}");
            }
            Value::Array(all) => all.iter_mut().for_each(|one| replace(one, name)),
            Value::Object(all) => all.iter_mut().for_each(|(name, one)| replace(one, name)),
            _ => {}
        }
    }
    let mut value: Value = serde_json::from_str(text).unwrap();
    replace(&mut value, "");
    value.to_string()
}

#[test]
fn pages_look_as_they_did() {
    let temp = folder(&FIXTURES);
    put(temp.path(), "broken/report.json", b"{\"schema\":\"guardrail/1\",");
    let site = site_of(temp.path());
    for (name, path) in [
        ("index", "index.html"),
        ("run", "run/uaf-timer-next/index.html"),
        ("finding", "run/uaf-timer/f0a849de8e732c49.html"),
        ("race", "run/race-process-timer/f8a492a05a3d5e2c.html"),
        ("survey", "survey/survey/index.html"),
        ("compare", "compare/uaf-timer/uaf-timer-next.html"),
    ] {
        let page = site
            .page(path)
            .unwrap_or_else(|| panic!("{path} is not among {:?}", site.paths().collect::<Vec<_>>()));
        insta::assert_snapshot!(name, page.replace(STYLE, ""));
    }
}

#[test]
fn all_links_lead_somewhere_and_the_markup_is_sound() {
    let temp = folder(&FIXTURES);
    let site = site_of(temp.path());
    assert_eq!(crawl::all(&site), site.paths().map(str::to_owned).collect::<BTreeSet<_>>());
}

#[test]
fn text_of_reports_and_names_of_files_never_becomes_markup() {
    let temp = folder(&[]);
    for (place, text) in FIXTURES {
        put(
            temp.path(),
            &format!("a<script>alert(2)</script>'\" onload=x/{place}"),
            hostile(text).as_bytes(),
        );
    }
    put(temp.path(), "<script>alert(3)</script>/report.json", b"<script>alert(4)</script>");
    put(temp.path(), "..%2f..%2f/report.json", FIXTURES[0].1.as_bytes());
    let site = site_of(temp.path());
    assert_eq!((site.counts().runs, site.counts().surveys, site.counts().problems), (6, 1, 1));
    let reached = crawl::all(&site);
    assert_eq!(reached.len(), site.paths().count());
    for path in site.paths() {
        assert!(path.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c)), "{path}");
        let page = site.page(path).unwrap();
        assert!(
            !page.contains("<script") && !page.contains('\u{202e}') && !page.contains('\u{1b}'),
            "{path}"
        );
        assert!(page.contains("&lt;script&gt;") || path.contains("2f"), "{path}");
    }
    let index = site.page("index.html").unwrap();
    assert!(index.contains("&lt;script&gt;alert(2)") && index.contains("&lt;script&gt;alert(3)"), "{index}");
}

#[test]
fn what_cannot_be_shown_is_listed_with_the_reason() {
    let temp = folder(&FIXTURES[..1]);
    let newer = FIXTURES[0].1.replace("guardrail/1", "guardrail/2");
    let cut = &FIXTURES[0].1[..FIXTURES[0].1.len() / 2];
    for (name, text) in
        [("newer.json", &*newer), ("cut/report.json", cut), ("other/report.json", "no"), ("x.json", "[]")]
    {
        put(temp.path(), name, text.as_bytes());
    }
    put(temp.path(), "bytes/report.json", b"\xff\x00");
    let outside = folder(&FIXTURES[..1]);
    std::os::unix::fs::symlink(outside.path().join("uaf-timer"), temp.path().join("away")).unwrap();
    let site = site_of(temp.path());
    assert_eq!(site.counts().runs, 1);
    let why: Vec<String> = site.problems.iter().map(|(place, why)| format!("{place}: {why}")).collect();
    insta::assert_snapshot!("problems", why.join("\n"));
    let index = site.page("index.html").unwrap();
    assert!(
        site.problems.iter().all(|(place, _)| index.contains(&format!("<code>{place}</code>"))),
        "{index}"
    );
}

#[test]
fn a_folder_without_results_is_refused() {
    let temp = folder(&[("notes.json", "{}"), ("a/b/console.log", "x")]);
    let error = Site::read(temp.path()).unwrap_err();
    assert!(matches!(error, SiteError::Empty(_)) && error.is_usage());
    assert!(error.to_string().ends_with("holds no results; give the folder of 'guardrail check --out' or 'guardrail survey --out', or one above it"));
    assert!(Site::read(&temp.path().join("absent")).unwrap_err().to_string().starts_with("cannot read "));
    assert!(Site::read(&temp.path().join("notes.json")).unwrap_err().to_string().contains("Not a directory"));
}

#[test]
fn a_survey_that_goes_on_shows_the_cells_that_are_there() {
    let temp = folder(&FIXTURES[3..4]);
    let table: Value = serde_json::from_str(FIXTURES[4].1).unwrap();
    for (number, cell) in table["cells"].as_array().unwrap().iter().enumerate() {
        let mut cell = cell.clone();
        cell["schema"] = "guardrail-survey-cell/1".into();
        put(temp.path(), &format!("survey/cells/{number}.json"), cell.to_string().as_bytes());
    }
    put(temp.path(), "survey/cells/.3.json.77", b"{");
    put(temp.path(), "survey/cells/4.json", b"{");
    put(temp.path(), "survey/runs/x/report.json", FIXTURES[0].1.as_bytes());
    let site = site_of(temp.path());
    assert_eq!((site.counts().runs, site.counts().surveys, site.counts().problems), (2, 1, 1));
    assert!(!site.surveys[0].complete && site.surveys[0].summary.cells.len() == 3);
    crawl::all(&site);
    // A table that is newer counts, and has what cells do not say.
    put(temp.path(), "survey/table.json", FIXTURES[4].1.as_bytes());
    set_written(&temp.path().join("survey/table.json"), SystemTime::now() + Duration::from_secs(60));
    let site = site_of(temp.path());
    assert!(site.surveys[0].complete && site.surveys[0].summary.diff.is_some());
    // One whose cells are all in the table is whole, whatever the times after a copy say.
    set_written(&temp.path().join("survey/table.json"), UNIX_EPOCH);
    let cells = temp.path().join("survey/cells");
    fs::rename(&cells, temp.path().join("survey/kept")).unwrap();
    for cell in table["cells"].as_array().unwrap() {
        let stem = format!(
            "{}@{}",
            cell["driver"].as_str().unwrap().replace('/', "+"),
            cell["kernel"].as_str().unwrap()
        );
        put(&cells, &format!("{stem}.json"), b"{}");
    }
    assert!(site_of(temp.path()).surveys[0].complete);
    fs::remove_dir_all(&cells).unwrap();
    assert!(site_of(temp.path()).surveys[0].complete);
    fs::rename(temp.path().join("survey/kept"), &cells).unwrap();
    // An old one gives the places.
    set_written(&temp.path().join("survey/table.json"), UNIX_EPOCH);
    let site = site_of(temp.path());
    assert!(!site.surveys[0].complete && site.surveys[0].summary.missing.len() == 1);
}

#[test]
fn the_folder_of_one_run_or_one_survey_is_a_site() {
    let temp = folder(&FIXTURES);
    for (name, path) in [("uaf-timer", "run/uaf_timer/index.html"), ("survey", "survey/survey/index.html")] {
        let site = site_of(&temp.path().join(name));
        assert!(site.page(path).is_some(), "{:?}", site.paths().collect::<Vec<_>>());
        crawl::all(&site);
    }
}

#[test]
fn pages_exist_only_at_their_addresses() {
    let temp = folder(&FIXTURES);
    let site = site_of(temp.path());
    for path in [
        "",
        "/",
        "..",
        "../uaf-timer/report.json",
        "uaf-timer/report.json",
        "run/../index.html",
        "run/uaf-timer/",
        "index.html/",
    ] {
        assert_eq!(site.page(path), None, "{path}");
    }
}

#[test]
fn many_findings_and_equal_fingerprints_have_limits_and_names() {
    let mut report: Value = serde_json::from_str(FIXTURES[0].1).unwrap();
    let one = report["findings"][0].clone();
    report["findings"] = (0..2100).map(|_| one.clone()).collect();
    let temp = folder(&[("many/report.json", &report.to_string())]);
    let site = site_of(temp.path());
    assert_eq!(site.runs[0].finding_names.iter().collect::<BTreeSet<_>>().len(), 2000);
    assert!(site.page("run/many/index.html").unwrap().contains("100 further findings are not shown"));
    assert_eq!(crawl::all(&site).len(), site.paths().count());
}

/// The contrast of two colors, as WCAG 2 computes it.
fn contrast(one: &str, other: &str) -> f64 {
    let brightness = |color: &str| {
        let digits = color.trim_start_matches('#');
        let wide: String =
            if digits.len() == 3 { digits.chars().flat_map(|c| [c, c]).collect() } else { digits.into() };
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&wide[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
    };
    let (one, other) = (brightness(one), brightness(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_has_enough_contrast_in_each_scheme() {
    assert!((contrast("#000", "#fff") - 21.0).abs() < 0.01);
    let mut schemes = 0;
    for rule in STYLE.split(":root{").skip(1) {
        let values: Vec<(&str, &str)> =
            rule.split('}').next().unwrap().split(';').filter_map(|one| one.trim().split_once(':')).collect();
        let value =
            |name: &str| values.iter().find(|(other, _)| *other == name).map(|(_, value)| *value).unwrap();
        for back in ["--back", "--panel"] {
            for fore in ["--fore", "--muted", "--link", "--error", "--warning", "--note", "--good"] {
                let contrast = contrast(value(back), value(fore));
                assert!(contrast >= 4.5, "{fore} on {back}: {contrast:.2}");
            }
        }
        schemes += 1;
    }
    assert_eq!(schemes, 3);
}

#[test]
fn a_site_is_written_only_to_an_empty_folder() {
    let temp = folder(&FIXTURES);
    let site = site_of(temp.path());
    let out = tempfile::tempdir().unwrap();
    let place = out.path().join("new/pages");
    assert_eq!(crate::write(&site, &place).unwrap(), site.paths().count());
    for path in site.paths() {
        assert_eq!(fs::read_to_string(place.join(path)).unwrap(), site.page(path).unwrap());
    }
    assert!(
        crate::write(&site, &place)
            .unwrap_err()
            .to_string()
            .ends_with("is not empty; give a folder that is new or empty")
    );
}
