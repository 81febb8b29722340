//! Tests every format of one report against snapshots, and the JSON against its schema.

use guardrail_finding::*;
use guardrail_report::fail_on::FailOn;
use guardrail_report::marks::Source;
use guardrail_report::suppress::{Date, Rules};
use guardrail_report::*;
use serde_json::Value;

fn frame(function: &str, offset: u64, line: Option<u32>) -> Frame {
    Frame {
        function: function.into(),
        module: Some("zoo".into()),
        offset,
        location: line.map(|line| Location { file: "zoo/uaf/uaf.c".into(), line }),
        ..Frame::default()
    }
}

/// A function of the kernel that only a walk of the stack has found.
fn above(function: &str, switched: bool) -> Frame {
    Frame { function: function.into(), offset: 0xb, outer: true, switched, ..Frame::default() }
}

fn inlined(function: &str, file: &str, line: u32) -> Inlined {
    Inlined { function: function.into(), location: Some(Location { file: file.into(), line }) }
}

fn context() -> ContextInfo {
    ContextInfo { thread: "insmod/71".into(), cpu: 1, level: "softirq".into(), ..ContextInfo::default() }
}

fn use_after_free() -> Finding {
    let at = |frame| Some(CallStack { stack: vec![frame], context: Some(context()), event: Some(5) });
    Finding {
        id: "5f0c2a".into(),
        checker: "dmcheck".into(),
        kind: "use-after-free".into(),
        message: "a read of 4 bytes touches an object that was freed".into(),
        module: "zoo".into(),
        function: "uaf_timer".into(),
        offset: 0x45,
        location: Some(Location { file: "zoo/uaf/state.h".into(), line: 9 }),
        stack: vec![
            Frame {
                inlined: vec![
                    inlined("get_state", "zoo/uaf/state.h", 9),
                    Inlined { function: "report".into(), location: None },
                ],
                ..frame("uaf_timer", 0x45, Some(31))
            },
            Frame { function: "call_timer_fn".into(), offset: 0x27, ..Frame::default() },
            above("asm_sysvec_apic_timer_interrupt", true),
            above("default_idle", false),
        ],
        context: context(),
        access: Some(AccessInfo { what: "read".into(), address: "0xffff88800123400c".into(), size: 4 }),
        object: Some(ObjectInfo {
            address: "0xffff888001234000".into(),
            size: 64,
            class: "slab".into(),
            offset: Some(12),
            allocated: at(frame("uaf_init", 0x10, Some(50))),
            freed: at(frame("uaf_stop", 0x22, None)),
            ..ObjectInfo::default()
        }),
        shadow: vec![">0xffff888001234000: fd fd fd fd".into()],
        event: 1234,
        count: 3,
        ..Finding::default()
    }
}

fn undefined() -> Finding {
    Finding {
        id: "77aa01".into(),
        checker: "dmcheck".into(),
        kind: "uninit-branch".into(),
        severity: Severity::Warning,
        message: "a conditional jump depends on bytes that nobody wrote".into(),
        module: "zoo".into(),
        function: "decide".into(),
        offset: 9,
        stack: vec![frame("decide", 9, None)],
        context: context(),
        origin: Some(OriginInfo {
            description: "a 32-byte slab object".into(),
            stack: vec![frame("make", 3, Some(7))],
        }),
        event: 1300,
        count: 1,
        ..Finding::default()
    }
}

fn race() -> Finding {
    Finding {
        id: "90ab12".into(),
        checker: "drcheck".into(),
        kind: "data-race".into(),
        message: "nothing orders a write by the softirq and a read by the hardirq".into(),
        triage: Some("harmful".into()),
        confirmation: Some(Confirmation {
            outcome: "confirmed".into(),
            detail: "while a write was held on CPU 0, CPU 1 came to read".into(),
            tries: 3,
            runs: 1,
            meetings: 1,
            values: vec![Some("0x5".into()), None, Some("0x6".into())],
            order: Some(ForcedOrder { held: RaceSide::Access, cpus: [0, 1] }),
            consequence: Some(Box::new(Consequence {
                outcome: "fault".into(),
                detail: "made to happen: uninit-branch in decide+0x9 [zoo]".into(),
                seconds: 1.5,
                finding: Some(undefined()),
            })),
            repeated: Some(Repeated {
                runs: 20,
                forced: 19,
                seconds: 7.25,
                failed: 1,
                failure: Some("the guest gave no sign of life for 40 s".into()),
            }),
        }),
        module: "zoo".into(),
        function: "fill".into(),
        offset: 4,
        stack: vec![frame("fill", 4, Some(12))],
        context: ContextInfo {
            locks: vec![HeldLock {
                name: "zoo_lock".into(),
                kind: "spinlock".into(),
                shared: false,
                stack: vec![frame("fill", 1, Some(10))],
            }],
            states: vec!["irq requested.enabled".into()],
            ..context()
        },
        access: Some(AccessInfo { what: "write".into(), address: "0xffff888001234008".into(), size: 8 }),
        other: Some(OtherAccess {
            stack: vec![Frame {
                inlined: vec![
                    inlined("readl", "include/asm-generic/io.h", 218),
                    inlined("status", "zoo/uaf/uaf.c", 14),
                ],
                ..frame("handler", 2, Some(20))
            }],
            context: ContextInfo {
                thread: "swapper/0".into(),
                cpu: 0,
                level: "hardirq".into(),
                ..ContextInfo::default()
            },
            access: Some(AccessInfo { what: "read".into(), address: "0xffff888001234008".into(), size: 4 }),
        }),
        related: vec![Related {
            what: "the line was requested".into(),
            stack: vec![frame("probe", 7, None)],
            context: None,
        }],
        notes: vec!["no lock is common: fill holds zoo_lock, handler holds nothing".into()],
        object: Some(ObjectInfo {
            address: "0xffff888001234000".into(),
            size: 64,
            class: "slab".into(),
            offset: Some(8),
            field: Some("zoo_device.head".into()),
            ..ObjectInfo::default()
        }),
        event: 1400,
        count: 1,
        ..Finding::default()
    }
}

fn sample() -> Report {
    Report {
        schema: SCHEMA.into(),
        driver: "zoo".into(),
        kernel: "6.1.0-56-amd64".into(),
        tools: vec!["dmcheck".into()],
        mode: "permissive".into(),
        run: Run {
            outcome: "guest-panic".into(),
            detail: Some("BUG: unable to handle page fault\nRIP: uaf_timer+0x45\x1b[2J".into()),
            guest_seconds: 9.1,
            wall_seconds: 14.25,
            lag_seconds: 0.5,
            boot_seconds: Some(3.5),
            command: vec!["check".into(), "zoo".into()],
            modules: vec![ModuleIdentity { name: "zoo".into(), ..ModuleIdentity::default() }],
            kernel_log: Some("/tmp/run/console.log".into()),
            steps: vec![Step { name: "load".into(), seconds: 0.25 }],
            events: 7_012_345,
            blocks: 2_020_537,
            accesses: 4_973_463,
            device_accesses: 38_333,
            ..Run::default()
        },
        findings: vec![use_after_free(), undefined(), race()],
        ..Report::default()
    }
}

fn print(write: fn(&Report, &mut dyn std::io::Write) -> std::io::Result<()>, report: &Report) -> String {
    let mut out = Vec::new();
    write(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn text() {
    insta::assert_snapshot!(print(text::write, &sample()));
}

#[test]
fn text_of_a_clean_run() {
    let mut report = Report { findings: vec![], ..sample() };
    report.run = Run { outcome: "completed".into(), events: 3, ..Run::default() };
    insta::assert_snapshot!(print(text::write, &report));
}

#[test]
fn json() {
    let text = print(json::write, &sample());
    insta::assert_snapshot!(text);
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), sample());
}

#[test]
fn sarif() {
    insta::assert_snapshot!(without_version(print(sarif::write, &sample())));
}

/// A report with a known, a new and a suppressed finding, and one that is gone.
fn marked(source: Source) -> Report {
    let mut rules = Rules::default();
    let rows = "[[suppress]]\nkind = \"data-race\"\nreason = \"a counter\"\n\
                [[suppress]]\nfunction = \"no_such\"\nreason = \"idle\"\n\
                [[suppress]]\nkind = \"leak\"\nreason = \"old\"\nexpires = 2026-01-01\n";
    rules.add("accepted.toml", rows).unwrap();
    let mut report = Report { tools: vec!["dmcheck".into()], ..sample() };
    report.run = Run { outcome: "completed".into(), ..report.run };
    let gone =
        |id: &str, checker: &str| Finding { id: id.into(), checker: checker.into(), ..use_after_free() };
    let findings = vec![use_after_free(), gone("0c0c", "dmcheck"), gone("0d0d", "lockcheck")];
    let earlier = Report { kernel: "6.1.0-50-amd64".into(), findings, ..report.clone() };
    rules.apply(&mut report, Date::new(2026, 6, 1).unwrap());
    compare::mark(&mut report, &list::FindingList::of(&earlier), "base.json", source);
    report
}

#[test]
fn text_with_known_findings() {
    insta::assert_snapshot!(print(text::write, &marked(Source::Baseline)));
    let text = print(text::write, &marked(Source::Report));
    assert!(text.contains("use-after-free in uaf_timer+0x45"), "an earlier report hides nothing: {text}");
    assert!(
        text.contains("Against base.json: 1 new, 1 gone, 1 the same, 1 unknown\n  new: 77aa01"),
        "{text}"
    );
}

#[test]
fn sarif_has_states_and_suppressions() {
    let log: Value = serde_json::from_str(&print(sarif::write, &marked(Source::Baseline))).unwrap();
    let run = &log["runs"][0];
    let results = run["results"].as_array().unwrap();
    let states: Vec<&Value> = results.iter().map(|result| &result["baselineState"]).collect();
    assert_eq!(states, ["unchanged", "new", "new", "absent"]);
    assert_eq!(results[2]["suppressions"][0]["justification"], "a counter");
    assert_eq!((&results[3]["kind"], &results[3]["level"]), (&"pass".into(), &"none".into()));
    let notes = run["invocations"][0]["toolConfigurationNotifications"].as_array().unwrap();
    let texts: Vec<&Value> = notes.iter().map(|note| &note["message"]["text"]).collect();
    assert_eq!(
        texts,
        ["the suppression accepts no finding: function no_such", "the suppression has expired: kind leak"]
    );
}

/// Replaces Guardrail's version, so that the snapshot does not change with it.
fn without_version(text: String) -> String {
    text.replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

#[test]
fn json_satisfies_its_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let valid = |report: &Value| check(&schema, &schema, report, "$");
    let mut report = serde_json::to_value(sample()).unwrap();
    valid(&report).unwrap();
    valid(&serde_json::to_value(marked(Source::Baseline)).unwrap()).unwrap();
    valid(&serde_json::to_value(Report { findings: vec![], ..sample() }).unwrap()).unwrap();
    report["findings"][0]["severity"] = "grave".into();
    assert!(valid(&report).unwrap_err().contains("$.findings[0].severity"));
    report["findings"][0].as_object_mut().unwrap().remove("severity");
    assert!(valid(&report).unwrap_err().contains("severity"));
}

/// Checks a value against the part of JSON Schema that the report's schema uses. Anything else in the
/// schema fails the test.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (word, rule) in schema.as_object().ok_or("a schema is an object")? {
        match word.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" | "additionalProperties"
                if !rule.is_object() || word == "$defs" => {}
            "$ref" => {
                let pointer = rule.as_str().and_then(|r| r.strip_prefix('#')).ok_or("bad $ref")?;
                check(root, root.pointer(pointer).ok_or("dangling $ref")?, value, at)?;
            }
            "type" => {
                let names: Vec<&str> = match rule {
                    Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
                    one => one.as_str().into_iter().collect(),
                };
                let is = |name: &&str| match *name {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    _ => false,
                };
                if !names.iter().any(is) {
                    return Err(format!("{at}: {value} is not of type {rule}"));
                }
            }
            "const" if rule == value => {}
            "enum" if rule.as_array().is_some_and(|all| all.contains(value)) => {}
            "minimum" if value.as_f64() >= rule.as_f64() || !value.is_number() => {}
            "pattern" => match value.as_str() {
                Some(text) if text.starts_with("0x") => {}
                _ => return Err(format!("{at}: {value} is no hexadecimal number")),
            },
            "required" if value.is_object() => {
                for name in rule.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    value.get(name).ok_or_else(|| format!("{at}: '{name}' is missing"))?;
                }
            }
            "required" | "properties" if !value.is_object() => {}
            "properties" => {
                for (name, rule) in rule.as_object().ok_or("bad properties")? {
                    if let Some(value) = value.get(name) {
                        check(root, rule, value, &format!("{at}.{name}"))?;
                    }
                }
                // The schema documents every field that is written.
                for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
                    rule.get(name).ok_or_else(|| format!("{at}: '{name}' is not in the schema"))?;
                }
            }
            "items" => {
                for (i, value) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, value, &format!("{at}[{i}]"))?;
                }
            }
            "anyOf" => {
                let errors: Vec<String> = rule
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map_while(|rule| check(root, rule, value, at).err())
                    .collect();
                if rule.as_array().is_some_and(|all| all.len() == errors.len()) {
                    return Err(errors.join("; "));
                }
            }
            "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    check(root, rule, value, &format!("{at}.{name}"))?;
                }
            }
            _ => return Err(format!("{at}: {value} breaks '{word}': {rule}")),
        }
    }
    Ok(())
}

/// A report with more findings than fit a screen.
fn many() -> Report {
    let other = |i: usize| {
        let id = format!("{i:04x}");
        let location = Some(Location { file: "zoo/uaf/uaf.c".into(), line: i as u32 + 1 });
        Finding { id, function: format!("reader_{i}"), location, severity: Severity::Warning, ..undefined() }
    };
    let findings: Vec<Finding> = sample().findings.into_iter().chain((0..30).map(other)).collect();
    Report { findings, ..sample() }
}

#[test]
fn junit() {
    let text = print(|report, out| junit::write(report, &FailOn::default(), out), &sample());
    insta::assert_snapshot!(text);
    let none = print(|report, out| junit::write(report, &FailOn::Never, out), &sample());
    assert!(!none.contains("<failure") && none.contains("failures=\"0\""), "{none}");
}

#[test]
fn text_of_a_guest_cannot_break_out_of_junit_or_ktap() {
    let mut report = sample();
    report.findings.truncate(1);
    report.findings[0].message = "</failure>\u{1b}[31m\n]]> & \"'<x>\nok 1 # SKIP".into();
    report.findings[0].function = "a#b\nnot ok".into();
    let xml = print(|report, out| junit::write(report, &FailOn::default(), out), &report);
    let mut reader = quick_xml::Reader::from_str(&xml);
    let mut failures = 0;
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Start(start) if start.name().as_ref() == b"failure" => failures += 1,
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(failures, 1);
    assert!(!xml.contains('\u{1b}') && !xml.contains("<x>"), "{xml}");
    let ktap = print(|report, out| ktap::write(report, &FailOn::default(), out), &report);
    assert!(!ktap.lines().any(|line| line.starts_with("ok 1 # SKIP") || line.trim() == "not ok"), "{ktap}");
    assert!(ktap.contains("in a_b?not ok"), "{ktap}");
}

#[test]
fn ktap() {
    let text = print(|report, out| ktap::write(report, &FailOn::default(), out), &sample());
    insta::assert_snapshot!(text);
    let results = |word: &str| text.lines().filter(|line| line.trim_start().starts_with(word)).count();
    assert!(text.contains(&format!("  1..{}\n", results("ok ") + results("not ok ") - 1)), "{text}");
    assert!(text.ends_with("not ok 1 zoo\n"), "{text}");
}

#[test]
fn screen() {
    let text = print(text::screen, &many());
    insta::assert_snapshot!(text);
    assert!(text.lines().count() < 140, "two findings in full, and a table");
    let mut calm = many();
    calm.findings.iter_mut().for_each(|finding| finding.severity = Severity::Note);
    let text = print(text::screen, &calm);
    assert!(
        text.starts_with("33 notes are not listed\n'guardrail report --full' prints all of them\n"),
        "{text}"
    );
    calm.findings[7].severity = Severity::Warning;
    let text = print(text::screen, &calm);
    assert!(
        text.starts_with("1 likely cause:\n warning  ") && text.contains(": 1 finding, 32 notes;"),
        "{text}"
    );
    calm.run.notes.push("a note".into());
    let brief = print(text::brief, &calm);
    assert!(brief.starts_with("1 likely cause:\n warning  "), "{brief}");
    assert!(brief.ends_with(": 1 finding, 32 notes\n") && !brief.contains("Note: "), "{brief}");
    calm.run.outcome = "workload-failed".into();
    assert!(print(text::brief, &calm).contains("Outcome: workload-failed\n"));
    let few = print(text::screen, &sample());
    let at = |id: &str| few.find(&format!("Fingerprint: {id}\n")).unwrap();
    assert!(
        at("5f0c2a") < at("90ab12") && at("90ab12") < at("77aa01"),
        "few findings are all shown, the worst first"
    );
}
