//! The program's messages and exit statuses after wrong usage. Nothing here needs a network, a cache or a
//! guest.

use std::process::{Command, Output, Stdio};

fn guardrail(args: &[&str]) -> Output {
    let cache = tempfile::tempdir().unwrap();
    Command::new(guardrail_tests::program())
        .args(args)
        .env("GUARDRAIL_CACHE", cache.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs the program and gives exit status and standard error; results must be absent.
fn refused(args: &[&str]) -> (i32, String) {
    let output = guardrail(args);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    (output.status.code().unwrap(), stderr.trim_end().to_owned())
}

#[track_caller]
fn assert_refused(args: &[&str], sentence: &str) {
    assert_eq!(refused(args), (2, format!("error: {sentence}")), "{args:?}");
}

/// No run could start, so the first thing that is missed ends the survey.
#[test]
fn a_survey_by_a_program_without_its_libraries_begins_no_run() {
    let program = guardrail_tests::program();
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    // Libraries may also be in the folder above.
    let (place, out) = (folder.path().join("bin"), folder.path().join("out"));
    std::fs::create_dir(&place).unwrap();
    let alone = place.join("guardrail");
    std::fs::hard_link(&program, &alone).unwrap();
    let mut survey = Command::new(&alone);
    survey.args(["survey", "--driver", "e1000", "--out"]).arg(&out);
    let survey = survey.env("GUARDRAIL_CACHE", folder.path().join("cache")).output().unwrap();
    let place = place.display();
    let sentence =
        format!("error: libguardrail_tracer.so is not beside the program in {place}; build the workspace\n");
    assert_eq!((survey.status.code(), String::from_utf8(survey.stderr).unwrap()), (Some(3), sentence));
    assert!(!out.exists());
}

#[test]
fn two_values_for_one_option() {
    for option in ["--kernel", "--device", "--tool", "--workload", "--smp", "--record", "--out", "--timeout"]
    {
        let value = if option == "--tool" { "dmcheck" } else { "1" };
        let sentence = format!("the argument '{option}' cannot be used multiple times");
        assert_refused(&["check", "e1000", option, value, option, value], &sentence);
    }
    let args = ["check", "e1000", "--format", "json", "--format", "text"];
    assert_refused(&args, "the argument '--format' cannot be used multiple times");
}

#[test]
fn values_out_of_range() {
    assert_refused(&["check", "e1000", "--smp", "5"], "invalid value '5' for '--smp <N>': 5 is not in 1..=4");
    let (status, text) = refused(&["check", "e1000", "--format", "jsn"]);
    assert_eq!(status, 2);
    assert!(text.contains("json"), "{text}");
    let (status, text) = refused(&["check", "e1000", "--kernell", "6.1"]);
    assert_eq!(status, 2);
    assert!(text.contains("--kernel"), "{text}");
    assert_refused(
        &["view", "x", "--address", "zz"],
        "invalid value 'zz' for '--address <A[-B]>': 'zz' is not a hexadecimal address",
    );
}

#[test]
fn races_are_confirmed_only_where_races_are_looked_for() {
    assert_refused(
        &["check", "e1000", "--tool", "quiet", "--confirm"],
        "--confirm tries races, but no checker of the run finds any; add --tool drcheck or --tool all",
    );
}

#[test]
fn modes_that_contain_need_a_gate_and_a_policy_that_makes_sense() {
    assert_refused(
        &["check", "e1000", "--mode", "stringent", "--gate", "off"],
        "--mode stringent and --mode triage need a gate that they can close; add --gate vmm or --gate vfio-user",
    );
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.toml");
    std::fs::write(&policy, "[kinds]\nleek = \"warn\"\n").unwrap();
    let policy = policy.to_str().unwrap();
    assert_refused(
        &["check", "e1000", "--mode", "stringent", "--policy", policy],
        &format!("{policy}: there is no kind of finding 'leek'; did you mean leak?"),
    );
}

#[test]
fn snapshots_need_a_place_and_time() {
    let check = ["check", "e1000", "--snapshot-on-finding"];
    let refused = |more: &[&str], sentence: &str| assert_refused(&[&check[..], more].concat(), sentence);
    refused(&[], "--snapshot-on-finding needs a place for the snapshots; add --out DIR");
    refused(
        &["--out", "x", "--gate", "off"],
        "--snapshot-on-finding needs a gate that holds the driver while the guest is saved; leave out --gate off",
    );
    refused(
        &["--out", "x", "--gate-timeout", "5"],
        "--snapshot-on-finding holds accesses for as long as saving takes; --gate-timeout must be at least 20",
    );
}

#[test]
fn a_debugger_needs_a_run_with_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let debug = ["debug", "abc", "--out", path];
    assert_refused(
        &debug,
        &format!("{path} has no run.json; name the folder of an earlier 'guardrail check --out'"),
    );
    let (run, report) = (
        r#"{"version":1,"drivers":["e1000"]}"#,
        r#"{"schema":"guardrail/1","driver":"e1000","kernel":"6.1","tools":[],"mode":"permissive","run":{},"findings":[]}"#,
    );
    std::fs::write(folder.path().join("run.json"), run).unwrap();
    std::fs::write(folder.path().join("report.json"), report).unwrap();
    assert_refused(
        &debug,
        &format!(
            "{path} has no snapshot of the guest; make some with 'guardrail check --snapshot-on-finding --out DIR'"
        ),
    );
}

#[test]
fn a_gate_outside_needs_a_device_that_can_be_there() {
    assert_refused(
        &["check", "e1000", "--gate", "vfio-user", "--iommu"],
        "--gate vfio-user cannot be had with --iommu: the device's QEMU does not know the guest's IOMMU tables; use --gate vmm",
    );
}

#[test]
fn unknown_names_come_with_near_ones() {
    assert_refused(
        &["check", "e1000", "--tool", "dmchek"],
        "there is no tool named 'dmchek'; the nearest are 'dmcheck', 'dmacheck', 'drcheck'",
    );
    assert_refused(&["check", "e1000", "--tool", ","], "--tool names no tool; see 'guardrail list tools'");
    assert_refused(
        &["view", "x", "--kind", "blok"],
        "there is no kind of event named 'blok'; the nearest are 'block', 'block-def'",
    );
}

#[test]
fn traces_that_cannot_be_read() {
    for command in ["analyze", "view"] {
        let (status, text) = refused(&[command, "/nonexistent.trace"]);
        assert_eq!(status, 2);
        assert!(text.starts_with("error: cannot open the trace /nonexistent.trace: No such file"), "{text}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"this is no trace at all, and long enough to be one").unwrap();
        let path = file.path().to_str().unwrap();
        assert_refused(&[command, path], &format!("{path} is not a guardrail trace"));
    }
}

#[test]
fn lists_are_arrays_with_names() {
    for what in ["drivers", "devices", "kernels", "tools", "workloads"] {
        let output = guardrail(&["list", what, "--format", "json"]);
        assert_eq!(output.status.code(), Some(0), "{what}");
        let list: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!list.is_empty() && list.iter().all(|item| item["name"].is_string()), "{what}");
        let text = guardrail(&["list", what]);
        assert_eq!(String::from_utf8_lossy(&text.stdout).lines().count(), list.len(), "{what}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let mut child = Command::new(guardrail_tests::program())
        .args(["list", "drivers"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn help() {
    for command in
        ["", "check", "debug", "analyze", "diff", "view", "list", "doctor", "guard", "inject", "protocol"]
    {
        let args: Vec<&str> = [command, "--help"].into_iter().filter(|arg| !arg.is_empty()).collect();
        let output = guardrail(&args);
        assert_eq!(output.status.code(), Some(0));
        let name = if command.is_empty() { "guardrail" } else { command };
        insta::assert_snapshot!(format!("help-{name}"), String::from_utf8(output.stdout).unwrap());
    }
}

/// A report with a leak of each fingerprint.
fn report(driver: &str, ids: &[&str]) -> String {
    let finding = |id: &&str| {
        serde_json::json!({
            "id": id, "checker": "dmcheck", "kind": "leak", "severity": "error", "message": "lost",
            "module": driver, "function": "probe",
        })
    };
    let findings: Vec<serde_json::Value> = ids.iter().map(finding).collect();
    serde_json::json!({
        "schema": "guardrail/1", "driver": driver, "kernel": "6.1", "tools": ["dmcheck"], "mode": "permissive",
        "run": { "outcome": "completed" }, "findings": findings,
    })
    .to_string()
}

/// A folder with files of the user.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn add(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

#[test]
fn reports_are_compared() {
    let files = Files::new();
    let old = files.add("old.json", &report("e1000", &["a1", "b2"]));
    let new = files.add("new.json", &report("e1000", &["b2", "c3"]));
    let output = guardrail(&["diff", &old, &new]);
    let expected = format!(
        "Against {old}: 1 new, 1 gone, 1 the same, 0 unknown\n  new: c3 error leak in probe [e1000]\n  \
         gone: a1 error leak in probe [e1000]\n  same: b2 error leak in probe [e1000]\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(1));
    let output = guardrail(&["diff", &old, &new, "--format", "json"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["schema"], "guardrail-diff/1");
    assert_eq!(
        [&object["new"][0]["id"], &object["gone"][0]["id"], &object["same"][0]["id"]],
        ["c3", "a1", "b2"]
    );
    assert_eq!(guardrail(&["diff", &new, &new]).status.code(), Some(0));
}

#[test]
fn a_mail_is_about_one_finding() {
    let files = Files::new();
    let from = files.add("report.json", &report("e1000", &["a1", "b2"]));
    let sentence = "a mail is about one finding; write 'guardrail report FINGERPRINT --mail'";
    assert_refused(&["report", "--mail", "--from", &from], sentence);
    assert_refused(&["report", "a1", "b2", "--mail", "--from", &from], sentence);
    let together = "the argument '--mail' cannot be used with '--format <FORMAT>'";
    assert_refused(&["report", "a1", "--mail", "--format", "json"], together);
    let output = guardrail(&["report", "b", "--mail", "--from", &from]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("Subject: [BUG] e1000: leak in probe\n"), "{text}");
}

#[test]
fn reports_that_cannot_be_compared() {
    let files = Files::new();
    let of = |driver: &str| files.add(&format!("{driver}.json"), &report(driver, &[]));
    let (one, other) = (of("e1000"), of("pcnet32"));
    assert_refused(
        &["diff", &one, &other],
        &format!(
            "{one} is of the driver e1000, and {other} is of pcnet32; only reports of the same driver are compared"
        ),
    );
    let newer = files.add("newer.json", "{\"schema\": \"guardrail/2\"}");
    let sentence =
        format!("{newer}: it has the schema \"guardrail/2\", but this version reads \"guardrail/1\"");
    assert_refused(&["diff", &one, &newer], &sentence);
    assert_refused(&["check", "e1000", "--against", &newer], &sentence);
    let text = files.add("text", "no report");
    let expected = "a report of 'guardrail check --format json' or '--format sarif' was expected";
    let sentence = format!("{text}: line 1: it is not JSON: expected ident; {expected}");
    assert_refused(&["diff", &text, &one], &sentence);
    let (status, sentence) = refused(&["diff", &one, "/nonexistent"]);
    assert_eq!(status, 2);
    assert!(sentence.starts_with("error: cannot read /nonexistent: No such file"), "{sentence}");
}

#[test]
fn baselines_and_suppressions_that_cannot_be_read() {
    let files = Files::new();
    let newer = files.add("newer", "{\"schema\": \"guardrail-baseline/3\"}");
    for command in ["check", "analyze"] {
        assert_refused(
            &[command, "x", "--baseline", &newer],
            &format!(
                "{newer}: it has the schema \"guardrail-baseline/3\", but this version reads \"guardrail-baseline/2\""
            ),
        );
    }
    let broken = files.add("broken", "{\n\"schema\": \"guardrail-baseline/2\",\n\"driver\": 3}");
    assert_refused(
        &["check", "e1000", "--baseline", &broken],
        &format!(
            "{broken}: line 3: invalid type: integer `3`, expected a string; a baseline of 'guardrail check \
             --write-baseline' was expected"
        ),
    );
    let rows = files
        .add("rows.toml", "[[suppress]]\nkind = \"leak\"\nreason = \"r\"\n\n[[suppress]]\nkind = \"leak\"\n");
    assert_refused(
        &["check", "e1000", "--suppress", &rows],
        &format!("{rows}: line 5: the row has no reason; add reason = \"why it is accepted\""),
    );
    assert_refused(
        &["check", "e1000", "--suppress", "/dev/zero"],
        "/dev/zero is too large; at most 1 MiB are read",
    );
    assert_refused(
        &["check", "e1000", "--fail-on", "new"],
        "--fail-on new needs to know which findings are not new; add --baseline or --against",
    );
    let (status, sentence) = refused(&["check", "e1000", "--fail-on", "leak,leek"]);
    assert!(
        status == 2 && sentence.contains("'leek' is neither a kind of finding nor one of any, new,"),
        "{sentence}"
    );
    let (status, sentence) = refused(&["check", "e1000", "--baseline", "a", "--against", "b"]);
    assert_eq!(status, 2);
    assert!(sentence.contains("'--baseline <FILE>' cannot be used with '--against <REPORT>'"), "{sentence}");
}

#[test]
fn mutants_that_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    assert_refused(
        &["inject", "e1000", "--kind", "flip", "-o", out],
        "there is no kind of bug named 'flip'; there are flip-branch, lengthen-loop, larger-copy, off-by-one, \
         delete-assignment, wrong-pointer, missing-lock, missing-check, early-free and all",
    );
    let (status, sentence) = refused(&["inject", "e1000", "-o", out, "--guarded"]);
    assert_eq!(status, 2, "{sentence}");
    assert!(sentence.contains("--run"), "{sentence}");
    for option in [["--workload", "load"], ["--device", "e1000"], ["--set", "A=1"], ["--mutant", "x.ko"]] {
        let (status, sentence) = refused(&["inject", "e1000", "-o", out, option[0], option[1]]);
        assert_eq!(status, 2, "{sentence}");
        assert!(sentence.contains("--run"), "{sentence}");
    }
    let (status, sentence) = refused(&["inject", "e1000"]);
    assert_eq!(status, 2, "{sentence}");
    assert!(sentence.contains("--out <DIR>"), "{sentence}");
}

#[test]
fn what_cannot_be_guarded() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let text = file("text.ko", b"this is no module");
    let mut header = [0u8; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[16] = 1;
    header[18] = 183;
    let arm = file("arm.ko", &header);
    for (driver, why) in [(&text, "text.ko is not an ELF file"), (&arm, "but only x86-64 is supported")] {
        let (status, sentence) = refused(&["guard", driver, "-o", out]);
        assert_eq!(status, 2, "{sentence}");
        assert!(sentence.contains(why), "{sentence}");
        let (status, sentence) = refused(&["guard", "--check", driver]);
        assert_eq!(status, 2, "{sentence}");
        assert!(sentence.contains(why), "{sentence}");
    }
    assert!(!std::path::Path::new(out).exists());
    let none = folder.path().join("none.ko").display().to_string();
    for arguments in [["--check", &none], ["--log", &none]] {
        let (status, sentence) = refused(&["guard", arguments[0], arguments[1]]);
        assert_eq!(status, 2, "{sentence}");
        assert!(sentence.starts_with(&format!("error: cannot read {none}: No such file")), "{sentence}");
    }
    assert_refused(
        &["guard", "e1000", "-o", out, "--format", "sarif"],
        "--format sarif is for findings; add --log FILE, or use text or json",
    );
    assert_refused(
        &["guard", "e1000", "-o", out, "--domain", "16"],
        "invalid value '16' for '--domain <N>': 16 is not in 1..=14",
    );
    for arguments in
        [&["guard"][..], &["guard", "e1000"], &["guard", "e1000", "--running", "--kernel", "6.1"]]
    {
        assert_eq!(refused(arguments).0, 2, "{arguments:?}");
    }
    // The command has begun, so a line reports that.
    let output = guardrail(&["guard", "e1000", "-o", out, "--kernel", "/no/such/boot/vmlinuz-6.1.0-1-amd64"]);
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{sentence}");
    assert!(sentence.contains("there are no modules of kernel 6.1.0-1-amd64"), "{sentence}");
}

/// Each file that a user can name may be a device, or larger than memory.
#[test]
fn files_without_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let source = folder.path().join("driver.c").display().to_string();
    std::fs::write(&source, "int x;\n").unwrap();
    let endless = "/dev/zero";
    let rejected: &[&[&str]] = &[
        &["analyze", endless],
        &["view", endless],
        &["diff", endless, endless],
        &["check", "e1000", "--kernel", endless],
        &["check", "e1000", "--policy", endless],
        &["check", "e1000", "--exec", endless],
        &["check", "e1000", "--file", endless],
        &["build", endless],
        &["watch", endless],
        &["check", "e1000", "--baseline", endless],
        &["check", "e1000", "--suppress", endless],
        &["check", "e1000", "--against", endless],
        &["guard", "--check", endless],
        &["guard", "--check", &source, "--runtime", endless],
        &["guard", "e1000", "-o", &out, "--rows", endless],
        &["guard", "e1000", "-o", &out, "--transact", "@/dev/zero"],
        &["learn", endless],
        &["transact", "survey", endless],
        &["protocol", "lint", "--chart", endless],
        &["verify", "--no-kernel", "--chart", endless, &source],
        &["verify", "--no-kernel", "--check", endless, &source],
    ];
    for args in rejected {
        // Without the limits, a command that reads on would take the machine's memory.
        let limits = ["--as=4000000000", "timeout", "60"];
        let cache = tempfile::tempdir().unwrap();
        let output = Command::new("prlimit")
            .args(limits)
            .arg(guardrail_tests::program())
            .args(*args)
            .env("GUARDRAIL_CACHE", cache.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let last = stderr.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(last.starts_with("error: ") && !last.contains("out of memory"), "{args:?}: {stderr}");
    }
}

#[test]
fn what_selects_no_transactions() {
    const REMEDY: &str = "name a report of 'guardrail check --format json', or a SARIF 2.1.0 file";
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let selected = |what: &str| refused(&["guard", "e1000", "-o", &out, "--transact", what]);
    let missing = folder.path().join("none.json").display().to_string();
    let why = "it cannot be read: No such file or directory (os error 2)";
    let sentence = format!("error: --transact @{missing}: {why}; {REMEDY}");
    assert_eq!(selected(&format!("e1000_set_*,@{missing}")), (2, sentence));
    for (text, why) in [
        ("no JSON", "it is not JSON: expected ident at line 1 column 2"),
        ("{\"findings\": []}", "it is neither a report with findings nor SARIF"),
        ("{\"version\": \"2.0.0\", \"runs\": []}", "it is SARIF \"2.0.0\", which is not read"),
        (
            "{\"schema\": \"guardrail/1\"}",
            "line 1: missing field `driver`; a report of 'guardrail check --format json' was expected",
        ),
    ] {
        let file = folder.path().join("findings.json");
        std::fs::write(&file, text).unwrap();
        let file = file.display();
        let sentence = format!("error: --transact @{file}: {why}; {REMEDY}");
        assert_eq!(selected(&format!("@{file}")), (2, sentence));
    }
    for (what, why) in [
        ("e1000-set", "'e1000-set' is no pattern of function names, in which * stands for any characters"),
        ("e1000_set_*,@", "'@' has no file behind it"),
    ] {
        let (status, sentence) = selected(what);
        assert_eq!(status, 2, "{sentence}");
        assert!(sentence.contains(why), "{sentence}");
    }
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn devices_by_hand_need_a_guarded_driver() {
    for verb in ["checkpoint", "restore"] {
        assert_eq!(refused(&["transact", verb]).0, 2);
        let (status, sentence) = refused(&["transact", verb, "eth0"]);
        assert_eq!(status, 2, "{sentence}");
        assert!(sentence.contains("load a driver that was guarded with --transact"), "{sentence}");
    }
}

#[test]
fn violations_in_a_log_are_findings() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let print = |format: &str| guardrail(&["guard", "--log", path, "--format", format]);
    std::fs::write(log.path(), "[ 1.0] Linux version 6.1.0-1-amd64 (x)\n").unwrap();
    assert_eq!(print("text").status.code(), Some(0));
    std::fs::write(
        log.path(),
        "[ 1.0] Linux version 6.1.0-1-amd64 (x)\n\
         [ 2.0] guardrail: violation: write of 8 bytes at ffff88ba1ffb5390 by f+0x1/0x20 [x]: domain 1 holds read, needs write\n\
         [ 2.1] guardrail: target: slab kmalloc-128 start ffff88ba1ffb5380 pointer offset 16 size 128\n\
         [ 2.2] guardrail: call trace of insmod[93] on CPU 0:\n\
         [ 2.3] guardrail:   f+0x1/0x20 [x]\n",
    )
    .unwrap();
    let text = print("text");
    assert_eq!(text.status.code(), Some(1));
    insta::assert_snapshot!("violations", String::from_utf8(text.stdout).unwrap());
    let report: serde_json::Value = serde_json::from_slice(&print("json").stdout).unwrap();
    assert_eq!(report["findings"][0]["kind"], "write-without-right");
    assert_eq!((&report["driver"], &report["kernel"]), (&"x".into(), &"6.1.0-1-amd64".into()));
    let sarif: serde_json::Value = serde_json::from_slice(&print("sarif").stdout).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "write-without-right");
}

#[test]
fn without_a_command_help_goes_to_standard_error() {
    let output = guardrail(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && !output.stderr.is_empty());
}

#[test]
fn clients_that_do_not_fit() {
    let profile = |client, scope| ["profile", "--client", client, "--scope", scope];
    for (client, scope, why) in [
        ("nul", "kernel", "there is no client nul; there are blocks, "),
        ("count:all", "kernel", "--client count:all: an option is KEY=VALUE, not 'all'"),
        ("count,count", "kernel", "the client count is named twice"),
        ("./none.so", "kernel", "there is no client at "),
        ("count", "user", "'user' is no scope; use kernel, driver, module:NAME,… or function:GLOB,…"),
        ("count", "module:", "'module:' is no scope; "),
    ] {
        let (status, sentence) = refused(&profile(client, scope));
        assert_eq!(status, 2, "{sentence}");
        assert!(sentence.starts_with(&format!("error: {why}")), "{sentence}");
    }
    assert_refused(
        &["vm", "start", "no name", "--client", "count"],
        "'no name' is no name for a VM; use up to 32 letters, digits, '-' and '_'",
    );
    assert_refused(
        &["client", "new", "../mine"],
        "'../mine' is no name for a client; use lower-case letters, digits, '-' and '_', such as my-client",
    );
}
