//! Reports of all sorts, as checks make them and as a hostile guest would like them.

use guardrail_finding::*;
use guardrail_report::marks::Source;
use guardrail_report::suppress::{Date, Rules};
use guardrail_report::{ModuleIdentity, Report, Run, SCHEMA, compare, list::FindingList};
use serde_json::Value;

/// What a name or a message may have that XML, JSON, KTAP or a reader of SARIF takes for something else.
const NASTY: &str = "a\0\u{1}\u{1b}[31m\"'<&>]]><!--&#0;{0} [x](y)\u{85}\u{2028}\u{fffe}\u{ffff}\u{fffd}\u{10ffff}%zz\
    \nok 1 # SKIP\nSubtest: x\n# Subtest: y\nKTAP version 1\n1..9\nreboot: System halted\r\n";
/// Members of a report whose values are of few.
const FIXED: [&str; 6] = ["schema", "severity", "baseline", "source", "held", "outcome"];

fn frame(function: &str, line: Option<u32>) -> Frame {
    Frame {
        function: function.into(),
        module: Some("drv".into()),
        offset: 0x45,
        location: line.map(|line| Location { file: "/src/drv/main.c".into(), line }),
        inlined: vec![Inlined { function: "helper".into(), location: None }],
        ..Frame::default()
    }
}

fn context(level: &str) -> ContextInfo {
    ContextInfo {
        thread: "insmod/71".into(),
        cpu: 1,
        level: level.into(),
        locks: vec![HeldLock {
            name: "drv_lock".into(),
            kind: "spinlock".into(),
            shared: false,
            stack: vec![frame("probe", Some(3))],
        }],
        states: vec!["irq requested.enabled".into()],
    }
}

/// A use after free, with all that memory can have.
fn memory() -> Finding {
    let at = |name: &str| {
        Some(CallStack {
            stack: vec![frame(name, Some(50))],
            context: Some(context("process")),
            event: Some(5),
        })
    };
    Finding {
        id: "5f0c2a".into(),
        checker: "dmcheck".into(),
        kind: "use-after-free".into(),
        message: "a read of 4 bytes touches an object that was freed".into(),
        module: "drv".into(),
        function: "drv_timer".into(),
        location: Some(Location { file: "/src/drv/main.c".into(), line: 31 }),
        stack: vec![frame("drv_timer", Some(31)), frame("call_timer_fn", None)],
        context: context("softirq"),
        access: Some(AccessInfo { what: "read".into(), address: "0xffff88800123400c".into(), size: 4 }),
        object: Some(ObjectInfo {
            address: "0xffff888001234000".into(),
            size: 64,
            class: "slab".into(),
            offset: Some(12),
            allocated: at("drv_new"),
            freed: at("drv_free"),
            ..ObjectInfo::default()
        }),
        origin: Some(OriginInfo { description: "a 32-byte object".into(), stack: vec![frame("make", None)] }),
        related: vec![Related { what: "requested".into(), stack: vec![frame("probe", None)], context: None }],
        notes: vec!["a note".into()],
        shadow: vec![">0xffff888001234000: fd fd".into()],
        event: 1234,
        count: 3,
        ..Finding::default()
    }
}

/// A race that was made to happen.
fn race() -> Finding {
    Finding {
        id: "90ab12".into(),
        checker: "drcheck".into(),
        kind: "data-race".into(),
        severity: Severity::Warning,
        message: "nothing orders a write by the softirq and a read by the hardirq".into(),
        triage: Some("harmful".into()),
        other: Some(OtherAccess {
            stack: vec![frame("handler", Some(20))],
            context: context("hardirq"),
            access: Some(AccessInfo { what: "write".into(), address: "0xffff888001234008".into(), size: 4 }),
        }),
        confirmation: Some(Confirmation {
            outcome: "confirmed".into(),
            detail: "while a write was held on CPU 0, CPU 1 came to read".into(),
            values: vec![Some("0x5".into()), None],
            ..Confirmation::default()
        }),
        ..memory()
    }
}

/// The report of a run that completed.
fn of(findings: Vec<Finding>) -> Report {
    Report {
        schema: SCHEMA.into(),
        driver: "drv".into(),
        kernel: "6.1.0-56-amd64".into(),
        tools: ["dmcheck", "drcheck", "dmacheck:line=64"].map(str::to_owned).into(),
        mode: "permissive".into(),
        run: Run {
            outcome: "completed".into(),
            workload: Some("load".into()),
            command: vec!["check".into(), "drv".into()],
            modules: vec![ModuleIdentity { name: "drv".into(), ..ModuleIdentity::default() }],
            wall_seconds: 1234.56789,
            ..Run::default()
        },
        findings,
        ..Report::default()
    }
}

/// A finding that is new, one that is known, one that is accepted, and one that is gone.
fn marked() -> Report {
    let named = |id: &str, function: &str| Finding { id: id.into(), function: function.into(), ..memory() };
    let mut report = of(vec![memory(), named("0a", "known"), race()]);
    let earlier = of(vec![named("0a", "known"), named("0b", "gone")]);
    let mut rules = Rules::default();
    let rows = "[[suppress]]\nkind = \"data-race\"\nreason = \"a counter\"\n\
                [[suppress]]\nfunction = \"no_such\"\nreason = \"idle\"\n";
    rules.add("accepted.toml", rows).expect("the rules are right");
    rules.apply(&mut report, Date::new(2026, 6, 1).expect("a day"));
    compare::mark(&mut report, &FindingList::of(&earlier), "base.json", Source::Baseline);
    report
}

/// A run that failed, with what the kernel of the guest says at its end.
fn failed(outcome: &str, findings: Vec<Finding>) -> Report {
    let mut report = of(findings);
    report.run.outcome = outcome.into();
    report.run.detail =
        Some("Kernel panic - not syncing: VFS: Unable to mount root fs\nreboot: System halted".into());
    report
}

/// A report of each sort, by name.
pub fn all() -> Vec<(&'static str, Report)> {
    let contained = Finding { action: Some("contained".into()), ..memory() };
    let passed = Finding { action: Some("passed: the mode is permissive".into()), ..race() };
    let kinds = kinds::all().into_iter().enumerate().map(|(number, kind)| {
        let severity = [Severity::Error, Severity::Warning, Severity::Note][number % 3];
        Finding { id: format!("{number:04x}"), kind: kind.into(), severity, ..memory() }
    });
    let many = (0..500).map(|number| Finding { id: format!("{number:06x}"), ..race() });
    let nowhere =
        Finding { location: None, stack: vec![], module: String::new(), function: "?".into(), ..memory() };
    vec![
        ("nothing found", of(vec![])),
        ("one finding of each kind", of(kinds.collect())),
        ("many findings", of(many.collect())),
        ("races", of(vec![race(), passed])),
        ("a contained fault", of(vec![contained])),
        ("a finding without a place", of(vec![nowhere, Finding { kind: "no-such-kind".into(), ..memory() }])),
        ("known and accepted findings", marked()),
        ("a run that failed", failed("guest-panic", vec![])),
        ("a run that failed with findings", failed("guest-panic", vec![memory(), race()])),
        ("a run without a driver", Report { tools: vec![], ..failed("load-failed", vec![]) }),
        ("hostile text", hostile(&of(vec![memory(), race()]))),
        ("hostile text in a run that failed", hostile(&failed("hung", vec![memory()]))),
        ("hostile text in marks", hostile(&marked())),
    ]
}

/// A report in which each text is hostile.
fn hostile(report: &Report) -> Report {
    let mut value = serde_json::to_value(report).expect("a report is JSON");
    spoil(&mut value, "");
    serde_json::from_value(value).expect("it is a report still")
}

fn spoil(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if !FIXED.contains(&name) => *text = format!("{NASTY}{text}"),
        Value::Array(all) => all.iter_mut().for_each(|one| spoil(one, name)),
        Value::Object(all) => all.iter_mut().for_each(|(name, one)| spoil(one, name)),
        _ => {}
    }
}
