//! `guardrail protocol`: what it prints about the stock protocols and about a user's files.

#[path = "protocol/monitors.rs"]
mod monitors;
#[path = "protocol/recorded.rs"]
mod recorded;
#[path = "protocol/spin.rs"]
mod spin;
#[path = "protocol/table.rs"]
mod table;

use guardrail_tests::{guardrail, root};
use std::fs;

/// A protocol of a user, which is sound.
const OWN: &str = "protocol own
  state off initial final
  state on
    state idle initial fair
    state busy owed
  in start(long speed) sleeps: off -> on
  in ask(void *what) room 4: idle -> busy
  out answer(long result): busy -> idle
  in end: idle -> off
";

/// Runs the program with a file of the user.
fn with(text: &str, words: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.chart");
    fs::write(&path, text).unwrap();
    let name = path.to_str().unwrap();
    let done = guardrail(&[&["protocol"], words, &["--chart", name]].concat());
    (done.status, done.stdout, done.stderr.replace(name, "own.chart"))
}

#[track_caller]
fn refused(text: &str, words: &[&str], sentence: &str) {
    let (status, stdout, stderr) = with(text, words);
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (2, "", format!("error: {sentence}\n").as_str()));
}

/// The names of all stock protocols.
fn names() -> Vec<String> {
    let done = guardrail(&["protocol", "list", "--format", "json"]);
    let list: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
    list.iter().map(|protocol| protocol["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_protocols_of_pci_and_ethernet_are_as_rich_as_those_of_the_paper() {
    let done = guardrail(&["protocol", "list", "--format", "json"]);
    assert_eq!((done.status, done.stderr.as_str()), (0, ""));
    let list: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
    for (name, states, transitions) in [("pci", 13, 41), ("ethernet", 17, 36)] {
        let protocol = list.iter().find(|protocol| protocol["name"] == name).unwrap();
        assert!(protocol["states"].as_u64().unwrap() >= states, "{protocol}");
        assert!(protocol["transitions"].as_u64().unwrap() >= transitions, "{protocol}");
    }
}

#[test]
fn stock_protocols_have_no_mistake() {
    let done = guardrail(&["protocol", "lint"]);
    assert_eq!((done.status, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""));
}

#[test]
fn mistakes_are_findings_with_a_line() {
    let (status, stdout, _) = with(&OWN.replace(" owed", " owed fair"), &["lint", "own"]);
    assert_eq!(status, 1);
    assert!(
        stdout.ends_with("own.chart, line 5: state on.busy is fair, but allows no incoming message\n"),
        "{stdout}"
    );
    let (status, stdout, stderr) = with(OWN, &["lint"]);
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (0, "", ""));
}

#[test]
fn every_stock_protocol_is_drawn_taken_apart_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let names = names();
    assert!(names.len() >= 4, "{names:?}");
    for name in &names {
        let picture = folder.path().join(format!("{name}.svg"));
        let done = guardrail(&["protocol", "draw", name, "--out", picture.to_str().unwrap()]);
        assert_eq!((done.status, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""));
        let text = fs::read_to_string(&picture).unwrap();
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        for form in ["dot", "promela", "rv", "rv-c"] {
            let done = guardrail(&["protocol", "export", name, "--as", form]);
            assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{name} as {form}");
        }
    }
    let done = guardrail(&["protocol", "decompose", "--format", "json"]);
    let all: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let protocols = all["protocols"].as_array().unwrap();
    assert_eq!(protocols.len(), names.len());
    for protocol in protocols {
        assert!(protocol["largest"].as_u64().unwrap() <= 12, "{}", protocol["name"]);
        assert!(protocol["places_compared"].as_u64().unwrap() > 1);
    }
    let text = guardrail(&["protocol", "decompose"]).stdout;
    assert!(text.starts_with("protocol "), "{text}");
}

#[test]
fn the_c_files_of_active_drivers_are_those_of_the_protocols() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["include", "core"] {
        fs::create_dir(folder.path().join(part)).unwrap();
    }
    let into = folder.path().to_str().unwrap();
    let done = guardrail(&["protocol", "header", "--into", into]);
    assert_eq!((done.status, done.stderr.as_str()), (0, ""));
    for name in ["include/protocols.h", "core/protocols.c"] {
        let made = fs::read_to_string(folder.path().join(name)).unwrap();
        let kept = fs::read_to_string(root().join("active").join(name)).unwrap();
        assert!(made == kept, "active/{name} is old: run 'guardrail protocol header'");
    }
    let done = guardrail(&["protocol", "header", "--into", "/nowhere"]);
    assert_eq!(
        (done.status, done.stderr.as_str()),
        (2, "error: there is no folder /nowhere/include; name the folder of active drivers with --into\n")
    );
}

#[test]
fn runs_follow_the_seed() {
    let run = |seed: &str| guardrail(&["protocol", "simulate", "pci", "--seed", seed, "--runs", "3"]).stdout;
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
    assert_eq!(run("7").matches("run ").count(), 3);
    let (status, stdout, _) = with(OWN, &["simulate", "own", "--steps", "2"]);
    assert_eq!(status, 0);
    assert!(stdout.starts_with("run 1: off\n  ?start   on.idle fair\n"), "{stdout}");
}

#[test]
fn what_makes_no_sense_is_one_sentence() {
    let known = names().join(", ");
    refused(OWN, &["draw", "owm"], &format!("there is no protocol 'owm'; there are {known}, own"));
    refused(
        &OWN.replace("owed", "owned"),
        &["list"],
        "own.chart, line 5: 'owned' is not one of initial, final, fair, owed",
    );
    refused(
        &OWN.replace("busy -> idle", "idel"),
        &["list"],
        "own.chart, line 8: expected 'MESSAGE: STATES -> STATE'",
    );
    refused("", &["list"], "own.chart has no protocol; expected 'protocol NAME'");
    let again = OWN.replace("protocol own", "protocol pci");
    refused(
        &again,
        &["lint"],
        "own.chart, line 1: protocol pci is in knowledge/pci/protocol.chart, line 18 already",
    );
    let many: String = (0..60).map(|at| format!("  in m{at}: off -> off\n")).collect();
    let (status, _, stderr) = with(&format!("{OWN}{many}"), &["header"]);
    assert_eq!(status, 2);
    assert!(stderr.contains("incoming messages; expected at most 64"), "{stderr}");
    let done = guardrail(&["protocol", "list", "--chart", "/nowhere.chart"]);
    assert_eq!(done.status, 2);
    assert!(done.stderr.starts_with("error: cannot read /nowhere.chart: "), "{}", done.stderr);
    let done = guardrail(&["protocol", "list", "--chart", "/bin/sh"]);
    assert_eq!(done.stderr, "error: /bin/sh is no text; expected a file of charts\n");
}

/// As many states and messages as a protocol may have.
#[test]
fn a_protocol_of_the_greatest_size_is_done_in_seconds() {
    use std::fmt::Write;
    let mut text = String::from("protocol own\n  state s0 initial final\n");
    (1..255).for_each(|at| _ = writeln!(text, "  state s{at}"));
    for at in 0..255 {
        let _ = writeln!(text, "  in m{}: s{at} -> s{}", at % 60, (at * 7 + 1) % 255);
        let _ = writeln!(text, "  out o{}: s{at} -> s{}", at % 60, (at * 13 + 5) % 255);
    }
    let begun = std::time::Instant::now();
    for (words, expected) in [
        (&["lint", "own"][..], 1),
        (&["decompose", "own"], 0),
        (&["export", "own", "--as", "promela"], 0),
        (&["draw", "own"], 2),
    ] {
        let (status, _, stderr) = with(&text, words);
        assert_eq!(status, expected, "{words:?}: {stderr}");
    }
    let taken = begun.elapsed().as_secs();
    assert!(taken < 60, "{taken} s");
    let (_, _, stderr) = with(&text.replace("state s254", "state s254\n  state s255"), &["lint", "own"]);
    assert_eq!(stderr, "error: own.chart, line 257: the protocol has more than 255 states\n");
}

#[test]
fn what_drivers_may_do_without_is_a_callback() {
    let text = OWN.replace("protocol own\n", "protocol own\n  of pci\n");
    let optional = text.replace("off -> on\n", "off -> on is begin probe optional\n");
    assert_eq!(with(&optional, &["lint", "own"]).0, 0);
    refused(
        &text.replace("off -> on\n", "off -> on unseen optional\n"),
        &["list"],
        "own.chart, line 7: 'unseen optional' should be 'is begin CALLBACK', 'is end CALLBACK', 'is call FUNCTION' or \
         'unseen', behind 'keeps MESSAGES' or 'refuses MESSAGES'",
    );
}
