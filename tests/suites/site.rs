//! Results as web pages: `guardrail serve` over HTTP and as files, and its pages in a browser. Nothing here boots a guest;
//! the first run fetches a browser.

#[path = "site/look.rs"]
mod look;
#[path = "site/web.rs"]
mod web;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use web::{Served, crawl, get};

/// The small results that the unit tests of the pages have as well.
fn fixtures() -> PathBuf {
    guardrail_tests::root().join("crates/site/fixtures")
}

/// A folder with the fixtures, and with one of them whose text is markup.
fn results() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    copy(&fixtures(), temp.path());
    let text = fs::read_to_string(fixtures().join("race-process-timer/report.json")).unwrap();
    let markup = "<script>document.title='caught'</script><img src=http://198.51.100.7/x onerror=alert(1)>";
    let text = text.replace("race_process_timer_", &format!("{markup}{}", "long_".repeat(60)));
    let folder = temp.path().join("a<script>alert(1)");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("report.json"), text).unwrap();
    temp
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn serve(words: &[&str]) -> Output {
    let mut command = Command::new(guardrail_tests::program());
    command.arg("serve").args(words).stdin(Stdio::null()).output().unwrap()
}

/// The exit status and the error, which is one line.
fn refused(words: &[&str]) -> (Option<i32>, String) {
    let output = serve(words);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{words:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code(), said.trim_end().to_owned())
}

fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn all_pages_are_reached_over_http_and_are_those_that_are_written() {
    let folder = results();
    let served = Served::start(folder.path());
    let pages: BTreeMap<String, String> = crawl(&served);
    let out = tempfile::tempdir().unwrap();
    let written = serve(&[word(folder.path()), "--static", word(&out.path().join("pages"))]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let said = String::from_utf8_lossy(&written.stdout).into_owned();
    assert!(said.contains(&format!("is the first of {} pages about", pages.len())), "{said}");
    for (path, page) in &pages {
        let file = fs::read_to_string(out.path().join("pages").join(path)).unwrap();
        assert!(file == *page, "{path} differs");
        assert!(!page.contains("<script") && !page.contains("<img"), "{path}");
    }
    // Runs, findings, a race, a survey with its runs, comparisons, and the orders of the index.
    assert!(pages.len() > 24 && pages.keys().any(|path| path.starts_with("compare/")), "{:?}", pages.keys());
}

#[test]
fn the_process_that_serves_has_no_rights_that_it_does_not_need() {
    let folder = results();
    let served = Served::start(folder.path());
    let status = fs::read_to_string(format!("/proc/{}/status", served.process())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    // Other addresses of the machine have no listener.
    assert!(std::net::TcpStream::connect(("127.0.0.2", served.port())).is_err());
    // What is added later is shown; what a link leads to is not.
    let outside = tempfile::tempdir().unwrap();
    copy(&fixtures().join("uaf-timer"), outside.path());
    symlink(outside.path(), folder.path().join("outside")).unwrap();
    copy(&fixtures().join("uaf-timer"), &folder.path().join("inside"));
    let index = served.until("/", |page| page.contains("inside/report.json"));
    assert!(index.contains("<code>outside</code>: it is a link, and links are not followed"), "{index}");
    assert!(!index.contains("outside/report.json"));
    for path in ["/outside/report.json", "/inside/report.json", "/../../etc/passwd", "/%2e%2e/x"] {
        assert!(get(&served, path).starts_with("HTTP/1.1 404 "), "{path}");
    }
}

#[test]
fn errors_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = refused(&[word(folder.path())]);
    let wanted = "holds no results; give the folder of 'guardrail check --out' or 'guardrail survey --out', or one above it";
    assert!(status == Some(2) && said.starts_with("error: ") && said.ends_with(wanted), "{said}");
    let (status, said) = refused(&[word(&folder.path().join("absent"))]);
    assert!(status == Some(2) && said.contains("cannot read ") && said.contains("No such file"), "{said}");

    let results = results();
    let served = Served::start(results.path());
    let port = served.port().to_string();
    let (status, said) = refused(&[word(results.path()), "--port", &port]);
    let wanted =
        format!("error: port {port} is in use; give another one with --port, or 0 for any that is free");
    assert_eq!((status, said), (Some(2), wanted));
    fs::write(folder.path().join("mine"), "").unwrap();
    let (status, said) = refused(&[word(results.path()), "--static", word(folder.path())]);
    assert!(
        status == Some(2) && said.ends_with("is not empty; give a folder that is new or empty"),
        "{said}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let (status, said) = refused(&[word(results.path()), "--port", "70000"]);
    assert!(status == Some(2) && said.contains("--port"), "{said}");
}

#[test]
fn reports_that_cannot_be_read_are_listed_beside_the_others() {
    let folder = results();
    let text = fs::read_to_string(fixtures().join("uaf-timer/report.json")).unwrap();
    for (name, text) in [
        ("cut", &text[..text.len() / 2]),
        ("newer", &text.replace("guardrail/1", "guardrail/9")),
        ("other", "\x7fELF"),
        ("empty", ""),
    ] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("report.json"), text).unwrap();
    }
    let served = Served::start(folder.path());
    assert!(served.said().contains("(and why 4 files cannot be shown)"), "{}", served.said());
    let index = get(&served, "/");
    for line in [
        "cut/report.json</code>: it is cut short",
        "newer/report.json</code>: it has the schema &quot;guardrail/9&quot;, which is newer than this version",
        "other/report.json</code>: line 1: it is not JSON",
        "empty/report.json</code>: it is empty.",
        "uaf-timer/report.json</td>",
    ] {
        assert!(index.contains(line), "{line}: {index}");
    }
}
