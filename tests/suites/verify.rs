//! `guardrail verify` on a driver of this suite: what holds is proved, each seeded bug is found, bad input is refused in a sentence.
//! It needs clang-14.

#[path = "verify/aliases.rs"]
mod aliases;
#[path = "verify/ordinary.rs"]
mod ordinary;

use guardrail_tests::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FIXTURE: &str = "../fixtures/active/verify";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("suites").join(FIXTURE).join(name)
}

/// Writes the driver with some definitions, and verifies it.
fn verify(folder: &Path, definitions: &[&str], more: &[&str]) -> Output {
    let file = folder.join("pump.c");
    let mut text: String = definitions.iter().map(|name| format!("#define {name}\n")).collect();
    text.push_str(&std::fs::read_to_string(fixture("pump.c")).unwrap());
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program());
    command.arg("verify").arg(&file).arg("--no-kernel").arg("--chart").arg(fixture("pump.chart")).args(more);
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_holds_is_proved() {
    let folder = tempfile::tempdir().unwrap();
    for form in
        [&[][..], &["HARD_1"], &["HARD_2"], &["HARD_3"], &["HARD_4"], &["HARD_5"], &["HARD_2", "HARD_3"]]
    {
        let output = verify(folder.path(), form, &[]);
        let text = out(&output);
        assert_eq!(output.status.code(), Some(0), "{form:?}: {text}");
        assert!(text.contains("all rules are proved") && text.contains("assumes: "), "{form:?}: {text}");
    }
}

/// The headers of active drivers are found from the folder of the files, too, where their names have no folder.
#[test]
fn headers_are_found_from_the_files_own_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../active/drivers");
    let mut command = Command::new(program());
    command.args(["verify", "ahci.c", "ahci_port.c", "ahci_hardware.c"]).current_dir(folder);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", out(&output));
}

/// Each bug breaks the rule of its number and no other, but for rule 4: a loop without an end breaks it in two states.
#[test]
fn seeded_bugs_are_found() {
    let folder = tempfile::tempdir().unwrap();
    for (bug, words) in [
        (1, "the driver sends belt.room, which state on.moving of belt does not allow"),
        (2, "belt.tick may stay enabled for ever"),
        (3, "AWAIT(bus.wake) may never end"),
        (4, "may stay in the owed state bus.starting for ever"),
        (5, "the main function returns while bus is in state starting"),
        (6, "msleep may sleep between an atomic message and the next AWAIT"),
    ] {
        let picture = folder.path().join("run.svg");
        let output = verify(folder.path(), &[&format!("BUG_{bug}")], &["--draw", picture.to_str().unwrap()]);
        let text = out(&output);
        assert_eq!(output.status.code(), Some(1), "BUG_{bug}: {text}");
        assert!(text.contains(words) && text.contains("This run is feasible"), "BUG_{bug}: {text}");
        for rule in 1..=6 {
            assert_eq!(text.contains(&format!("protocol-rule-{rule} ")), rule == bug, "BUG_{bug}: {text}");
        }
        assert!(std::fs::read_to_string(&picture).unwrap().ends_with("</svg>\n"), "BUG_{bug}");
    }
}

#[test]
fn reports_come_in_all_formats() {
    let folder = tempfile::tempdir().unwrap();
    let output = verify(folder.path(), &["BUG_1"], &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["findings"][0]["kind"], "protocol-rule-1");
    assert!(json["findings"][0]["location"]["line"].as_u64().unwrap() > 50);
    let output = verify(folder.path(), &["BUG_1"], &["--format", "sarif"]);
    let sarif: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "protocol-rule-1");
}

/// A limit is never taken for a proof.
#[test]
fn a_limit_is_not_a_proof() {
    let folder = tempfile::tempdir().unwrap();
    let output = verify(folder.path(), &[], &["--timeout", "0"]);
    assert_eq!(output.status.code(), Some(5), "{}", out(&output));
    assert!(out(&output).contains("not decided: the time is up"));
}

#[test]
fn bad_input_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let chart = fixture("pump.chart");
    let wrong = |text: &str, more: &[&str], words: &str| {
        let file = folder.path().join("wrong.c");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(program());
        command.arg("verify").arg(&file).arg("--no-kernel").arg("--chart").arg(&chart).args(more);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}: {error}");
        assert!(error.contains(words) && error.lines().count() == 1, "{text}: {error}");
    };
    const HEAD: &str = "struct active; int active_await(struct active *a, unsigned long long b); void active_emit(struct active *a, unsigned b, void *m);\n";
    wrong("int f(", &[], "does not compile: ");
    wrong("int f(void) { return 0; }", &[], "hold no program");
    wrong(
        "int f(void) { return 0; }",
        &["--main", "f", "--protocols", "buss"],
        "there is no protocol 'buss'; the nearest names are bus",
    );
    wrong("int f(void) { return 0; }", &["--main", "g", "--protocols", "bus"], "no function g");
    let with = |body: &str| format!("{HEAD}{body}");
    let bus = ["--main", "f", "--protocols", "bus"];
    wrong(
        &with("void f(struct active *a) { active_emit(a, 69, 0); }"),
        &bus,
        "belt.belt_on, of a protocol that the program does not name",
    );
    wrong(
        &with("void f(struct active *a) { active_emit(a, 99, 0); }"),
        &bus,
        "number 99, which no protocol has",
    );
    wrong(
        &with("unsigned g(void); void f(struct active *a) { active_emit(a, g(), 0); }"),
        &bus,
        "is not constant",
    );
    wrong(&with("void f(struct active *a) { active_await(a, 1); f(a); }"), &bus, "f calls itself");
}

/// Code that the engine does not follow is an assumption or any value, and hides nothing.
#[test]
fn what_is_not_followed_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    const HEAD: &str = "struct active; int active_await(struct active *a, unsigned long long b); void active_emit(struct active *a, unsigned b, void *m); void ext(int *p); extern unsigned dev(void);\n";
    let run = |body: &str| {
        let file = folder.path().join("small.c");
        std::fs::write(&file, format!("{HEAD}{body}")).unwrap();
        let mut command = Command::new(program());
        command.arg("verify").arg(&file).arg("--no-kernel").arg("--chart").arg(fixture("pump.chart"));
        let output = command.args(["--main", "f", "--protocols", "bus"]).output().unwrap();
        (output.status.code(), out(&output))
    };
    // A variable that is written by its address elsewhere, in each of the forms of C.
    for write in [
        "ext(&ok);",
        "int *p = &ok; *p = dev();",
        "int *q[2]; q[dev() & 1] = &ok; *q[dev() & 1] = dev();",
        "__asm__ volatile(\"\" : \"+m\"(ok));",
        "((char *)&ok)[dev() & 3] = dev();",
        "__builtin_memset(&ok, dev(), 4);",
        "struct { int *p; } s = { &ok }; *s.p = dev();",
    ] {
        let body = format!(
            "void f(struct active *a) {{ int ok = 1; active_await(a, 1); {write} if (ok == 1) active_emit(a, 65, 0); else active_emit(a, 66, 0); }}"
        );
        let (code, text) = run(&body);
        assert_eq!(code, Some(1), "{write}: {text}");
        assert!(text.contains("the driver sends bus.paused"), "{write}: {text}");
    }
    let (code, text) = run(
        "void f(struct active *a) { __asm__ volatile(\"nop\"); active_await(a, 1); active_emit(a, 65, 0); }",
    );
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("assumes: inline assembly"), "{text}");
    // What the top half of an interrupt writes may change at any time.
    let top = "static int flag; int top(int irq) { flag = 0; return 1; } int (*const entry)(int) = top;\n";
    let (code, text) = run(&format!(
        "{top}void f(struct active *a) {{ flag = 1; active_await(a, 1); if (flag) active_emit(a, 65, 0); else active_emit(a, 66, 0); }}"
    ));
    assert_eq!(code, Some(1), "{text}");
    // A counter of a byte never reaches 300.
    let (code, text) = run(
        "void f(struct active *a) { active_await(a, 1); for (unsigned char i = 0; i < (int)(dev() | 300); i++) ; active_emit(a, 65, 0); }",
    );
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("owed state bus.starting"), "{text}");
}

/// Small programs in two forms, each with what an engine may get wrong: casts, overlapping fields, wrapping numbers, loops
/// that seem to end. The form that breaks a rule is never proved. Of the other, the first line says what is made of it,
/// and no run of it is called feasible.
#[test]
fn faulty_twins_are_never_proved() {
    let folder = tempfile::tempdir().unwrap();
    let twins = fixture("twins");
    std::fs::copy(twins.join("twin.h"), folder.path().join("twin.h")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(&twins).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".c") {
            continue;
        }
        count += 1;
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("// ")).unwrap_or_default();
        let verdict = |text: &str| {
            let file = folder.path().join(&name);
            std::fs::write(&file, text).unwrap();
            let mut command = Command::new(program());
            command.arg("verify").arg(&file).arg("--no-kernel").arg("--chart").arg(fixture("pump.chart"));
            let output = command.args(["--main", "main_loop", "--protocols", "bus"]).output().unwrap();
            let what = match output.status.code() {
                Some(0) => "proved",
                Some(1) => "reported",
                Some(2) => "refused",
                _ => "not decided",
            };
            (what, out(&output))
        };
        let (what, report) = verdict(&text);
        assert_eq!(what, expected, "{name}: {report}");
        assert!(!report.contains("This run is feasible"), "{name}: {report}");
        let (what, report) = verdict(&format!("#define WRONG\n{text}"));
        assert_ne!(what, "proved", "{name} with WRONG: {report}");
        assert!(what != "refused" || expected == "refused", "{name} with WRONG: {report}");
    }
    assert!(count > 40, "{count}");
}

/// A certificate holds for the code that it is about. One with a changed state, or for other code, is refused.
#[test]
fn certificates_are_checked_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proof.json");
    let name = path.to_str().unwrap();
    for form in [&[][..], &["HARD_1"], &["HARD_3"], &["HARD_4"], &["HARD_2"]] {
        let output = verify(folder.path(), form, &["--certificate", name]);
        assert_eq!(output.status.code(), Some(0), "{form:?}: {}", out(&output));
        let output = verify(folder.path(), form, &["--check", name]);
        assert_eq!(output.status.code(), Some(0), "{form:?}: {}", out(&output));
        assert!(out(&output).contains("the certificate of all rules holds"));
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    let states = whole[0]["states"].as_array().unwrap().len();
    let refused = |value: &serde_json::Value, words: &str| {
        std::fs::write(&path, value.to_string()).unwrap();
        let output = verify(folder.path(), &["HARD_2"], &["--check", name]);
        let text = out(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words) && text.lines().count() == 1, "{text}");
    };
    // Without any one of its states it is no invariant.
    for at in [0, states / 3, states / 2, states - 1] {
        let mut less = whole.clone();
        less[0]["states"].as_array_mut().unwrap().remove(at);
        refused(&less, "does not hold");
    }
    let mut other = whole.clone();
    other[0]["states"][states / 2][1] = serde_json::json!(1_000_000);
    refused(&other, "damaged");
    other = whole.clone();
    other[0]["cuts"] = serde_json::json!([]);
    refused(&other, "nothing in the certificate ends the runs");
    other = whole.clone();
    other[0]["digest"] = serde_json::json!("0");
    refused(&other, "other code");
    other = whole;
    other[0]["expressions"] = serde_json::json!([]);
    refused(&other, "damaged");
}

/// The driver of the page about active drivers, with a protocol that is no stock protocol: it is proved, and mistakes are found.
#[test]
fn protocols_of_a_user_are_added_to_the_stock_ones() {
    let active = Path::new(env!("CARGO_MANIFEST_DIR")).join("../active");
    let folder = tempfile::tempdir().unwrap();
    let chart = active.join("drivers/factor.chart");
    for name in ["include", "core", "drivers"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    for name in ["active.h", "active_pci.h", "factor.h"] {
        std::fs::copy(active.join("include").join(name), folder.path().join("include").join(name)).unwrap();
    }
    let run = |command: &str, more: &[&std::ffi::OsStr]| {
        let mut program = Command::new(program());
        program.args(command.split(' ')).arg("--chart").arg(&chart).args(more).output().unwrap()
    };
    let made = run("protocol header", &["--into".as_ref(), folder.path().as_ref()]);
    assert_eq!(made.status.code(), Some(0), "{}", out(&made));
    let driver = std::fs::read_to_string(active.join("drivers/edu.c")).unwrap();
    let file = folder.path().join("drivers/edu.c");
    for (right, wrong, words) in [
        ("", "", "all rules are proved"),
        ("\t\t\tfactor(a, e, usable);", "if (usable) factor(a, e, usable);", "owed state factor.working"),
        ("PCI_ERROR, PCI_REMOVE, PCI_UNPLUG)", "PCI_ERROR, PCI_UNPLUG)", "protocol-rule-3 "),
        ("\tEMIT(a, TIMER_CANCEL);\n", "", "protocol-rule-"),
        ("\t\t\tEMIT(a, IRQ_DISABLE);\n", "", "protocol-rule-5 "),
    ] {
        assert!(driver.contains(right), "{right}");
        std::fs::write(&file, driver.replacen(right, wrong, 1)).unwrap();
        let text = out(&run("verify", &[file.as_ref()]));
        assert!(text.contains(words), "{right}: {text}");
    }
}
