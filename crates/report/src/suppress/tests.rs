use super::*;
use crate::model::Run;
use guardrail_finding::{Frame, ObjectInfo, OtherAccess};

fn rules(text: &str) -> Rules {
    let mut rules = Rules::default();
    rules.add("s.toml", text).unwrap();
    rules
}

fn refused(text: &str) -> String {
    Rules::default().add("s.toml", text).unwrap_err()
}

fn day(year: u16) -> Date {
    Date::new(year, 6, 1).unwrap()
}

fn race() -> Finding {
    let frame = Frame { function: "e1000_intr".into(), ..Frame::default() };
    Finding {
        id: "ab12".into(),
        checker: "drcheck".into(),
        kind: "data-race".into(),
        module: "e1000".into(),
        function: "e1000_watchdog".into(),
        other: Some(OtherAccess { stack: vec![frame], ..OtherAccess::default() }),
        object: Some(ObjectInfo {
            class: "slab".into(),
            field: Some("e1000_adapter.stats".into()),
            ..ObjectInfo::default()
        }),
        ..Finding::default()
    }
}

fn report() -> Report {
    let leak =
        Finding { id: "cd34".into(), kind: "leak".into(), checker: "dmcheck".into(), ..Finding::default() };
    Report {
        driver: "e1000,mii".into(),
        tools: vec!["dmcheck".into(), "drcheck:defer".into()],
        run: Run { outcome: "completed".into(), ..Run::default() },
        findings: vec![race(), leak],
        ..Report::default()
    }
}

fn suppressed(row: &str) -> Vec<u32> {
    let mut report = report();
    rules(&format!("[[suppress]]\n{row}\nreason = \"r\"\n")).apply(&mut report, day(2026));
    report.findings.iter().map(|finding| finding.suppressed.as_ref().map_or(0, |by| by.line)).collect()
}

#[test]
fn a_row_accepts_by_fingerprint_or_by_all_of_its_patterns() {
    assert_eq!(suppressed("fingerprint = \"ab12\""), [1, 0]);
    assert_eq!(suppressed("fingerprint = \"ab\""), [0, 0]);
    assert_eq!(suppressed("kind = \"data-*\""), [1, 0]);
    assert_eq!(suppressed("function = \"*\""), [1, 1]);
    // Either side of a race counts.
    assert_eq!(suppressed("function = \"e1000_intr\""), [1, 0]);
    assert_eq!(suppressed("object = \"slab\"\nfield = \"*.stats\""), [1, 0]);
    assert_eq!(suppressed("field = \"*.stats\"\nfunction = \"other\""), [0, 0]);
    assert_eq!(suppressed("kind = \"*\"\nmodule = \"e1000\""), [1, 0]);
    assert_eq!(suppressed("kind = \"*\"\nchecker = \"dmcheck\""), [0, 1]);
}

#[test]
fn unused_and_expired_rows_are_reported() {
    let text = "schema = \"guardrail-suppress/1\"\n\
        [[suppress]]\nfingerprint = \"ab12\"\nreason = \"used\"\nexpires = 2026-06-01\n\
        [[suppress]]\nkind = \"leak\"\nreason = \"old\"\nexpires = 2026-05-31\n\
        [[suppress]]\nfunction = \"no_such\"\nreason = \"idle\"\n\
        [[suppress]]\nkind = \"leak\"\nmodule = \"pcnet32\"\nreason = \"another driver\"\n\
        [[suppress]]\nkind = \"lock-order\"\nchecker = \"lockcheck\"\nreason = \"another checker\"\n";
    let mut found = report();
    rules(text).apply(&mut found, day(2026));
    let did = found.suppressions.as_ref().unwrap();
    let lines = |idle: &[Idle]| idle.iter().map(|one| (one.line, one.what.clone())).collect::<Vec<_>>();
    assert_eq!(did.suppressed, 1);
    assert_eq!(lines(&did.unused), [(10, "function no_such".to_owned())]);
    assert_eq!(lines(&did.expired), [(6, "kind leak".to_owned())]);
    assert_eq!(did.expired[0].expires.as_deref(), Some("2026-05-31"));
    // A run that did not complete says nothing of rows that it did not use.
    let mut cut = report();
    cut.run.outcome = "guest-panic".into();
    rules(text).apply(&mut cut, day(2026));
    assert_eq!(cut.suppressions.unwrap().unused, []);
}

#[test]
fn faults_are_reported_with_line_and_what_was_expected() {
    assert_eq!(
        refused("[[suppress]]\nkind = \"leak\"\n\n[[suppress]]\nkind = \"leak\"\nreason = \" \"\n"),
        "line 1: the row has no reason; add reason = \"why it is accepted\""
    );
    let row = |row: &str| refused(&format!("\n[[suppress]]\nreason = \"r\"\n{row}\n"));
    assert!(row("").starts_with("line 2: the row accepts everything"));
    assert!(row("module = \"e1000\"").starts_with("line 2: the row accepts everything"));
    assert!(row("kind = \"leek\"").ends_with("no kind of finding fits \"leek\""));
    assert!(row("fingerprint = \"xyz\"").contains("\"xyz\" is no fingerprint"));
    assert!(row("fingerprint = \"ab\"\nkind = \"leak\"").contains("one of both was expected"));
    assert!(row("kind = \"leak\"\nexpires = 2026-02-30").starts_with("line 5: "));
    assert!(row("kind = \"leak\"\nexpires = \"soon\"").starts_with("line 5: "));
    assert!(row("kind = \"leak\"\nexpires = 2026-02-03T01:02:03Z").contains("is no day"));
    assert!(row("knd = \"leak\"").starts_with("line 4: unknown field `knd`"));
    assert!(row(&format!("function = \"{}\"", "*".repeat(257))).contains("more than 256"));
    assert!(refused("suppress = 3").starts_with("line 1: invalid type"));
    assert!(refused("[[suppress]\n").starts_with("line 1: "));
    assert!(refused("x = 1\n").starts_with("line 1: unknown field `x`"));
    assert_eq!(
        refused("\nschema = \"guardrail-suppress/2\"\n[later]\n"),
        "line 2: it has the schema \"guardrail-suppress/2\", but this version reads \"guardrail-suppress/1\""
    );
    assert!(refused(&"[[suppress]]\n".repeat(MAX_ROWS + 1)).contains("at most 10000"));
    // Tables of tables without end.
    assert!(Rules::default().add("x", &format!("a = {}", "[".repeat(100_000))).is_err());
}
