use super::*;
use crate::model::Run;

fn place(driver: &str, kernel: &str) -> Position {
    Position { driver: driver.into(), device: None, kernel: kernel.into() }
}

fn cell(driver: &str, kernel: &str, state: State, ids: &[&str]) -> Cell {
    let finding = |id: &&str| Finding {
        id: (*id).to_owned(),
        checker: "dmcheck".into(),
        kind: "leak".into(),
        message: "8 bytes <lost>".into(),
        module: driver.into(),
        function: "probe".into(),
        offset: 16,
        ..Finding::default()
    };
    let report = Report {
        run: Run { outcome: "completed".into(), ..Run::default() },
        findings: ids.iter().map(finding).collect(),
        ..Report::default()
    };
    Cell {
        schema: CELL_SCHEMA.into(),
        place: place(driver, kernel),
        class: "network".into(),
        state,
        why: (!matches!(state, State::Clean | State::Findings)).then(|| "it did not\nbind".to_owned()),
        report: (state != State::NotAvailable).then_some(report),
        ..Cell::default()
    }
}

fn survey(cells: &[Cell]) -> Summary {
    let places: Vec<Position> =
        ["a", "b"].iter().flat_map(|driver| ["6.1", "7.2"].map(|kernel| place(driver, kernel))).collect();
    let settings = Settings { tools: vec!["dmcheck".into()], smp: 2, ..Settings::default() };
    Summary::new(settings, &places, cells)
}

fn first() -> Vec<Cell> {
    vec![
        cell("a", "6.1", State::Findings, &["f1", "f2"]),
        cell("a", "7.2", State::Findings, &["f1"]),
        cell("b", "6.1", State::NotAvailable, &[]),
    ]
}

fn text(summary: &Summary) -> String {
    let mut out = Vec::new();
    summary.write_text(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_table_shows_every_cell_and_every_distinct_finding_once() {
    insta::assert_snapshot!(text(&survey(&first())), @r"
    driver  6.1  7.2
    a       2    1
    b       n/a  -

    3 runs: 0 clean, 2 with findings, 0 failed, 1 not available, 1 not run yet; 2 distinct findings

    Not available:
      b on 6.1: it did not

    Findings:
      f1 dmcheck: error leak in probe+0x10 [a]
        8 bytes <lost>
        a on 6.1, a on 7.2
      f2 dmcheck: error leak in probe+0x10 [a]
        8 bytes <lost>
        a on 6.1
    ");
}

#[test]
fn a_finding_is_gone_only_where_a_run_could_have_had_it() {
    let earlier = survey(&[
        cell("a", "6.1", State::Findings, &["f1", "f2"]),
        cell("a", "7.2", State::Clean, &[]),
        cell("b", "6.1", State::Findings, &["f3"]),
    ]);
    let mut now = survey(&[
        cell("a", "6.1", State::Findings, &["f1", "f4"]),
        cell("a", "7.2", State::Findings, &["f4"]),
        cell("b", "6.1", State::Failed, &[]),
    ]);
    let diff = diff(&earlier, &now, "old");
    assert_eq!(diff.new, ["f4"]);
    assert_eq!(diff.same, ["f1"]);
    let ids = |list: &[Distinct]| list.iter().map(|one| one.finding.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&diff.gone), ["f2"]);
    assert_eq!(ids(&diff.unknown), ["f3"]);
    let changed: Vec<State> = diff.changed.iter().map(|change| change.now).collect();
    assert_eq!(changed, [State::Findings, State::Failed]);
    now.diff = Some(diff);
    let text = text(&now);
    let end = text.split("\nAgainst").nth(1).unwrap();
    insta::assert_snapshot!(end, @r"
     old: 1 new, 1 gone, 1 the same, 1 unknown
      new: f4 leak in probe+0x10 [a] (a on 6.1)
      gone: f2 leak in probe+0x10 [a] (a on 6.1)
      unknown: f3 leak in probe+0x10 [b] (b on 6.1)
      a on 7.2: findings, was clean
      b on 6.1: failed, was findings
    ");
}

#[test]
fn what_a_failed_run_had_found_is_kept() {
    let summary = survey(&[cell("a", "6.1", State::Failed, &["f1"])]);
    assert_eq!(summary.findings.len(), 1);
    assert!(text(&summary).contains("failed, 1"));
}

#[test]
fn a_device_that_was_cut_off_is_named_and_notes_do_not_count() {
    let mut cut = cell("a", "6.1", State::CutOff, &["f1", "f2"]);
    cut.why = Some("f1: the gate closed at a leak".to_owned());
    cut.report.as_mut().unwrap().findings[1].severity = guardrail_finding::Severity::Note;
    let mut summary = survey(&[cut]);
    summary.settings.mode = Some("triage".to_owned());
    let text = text(&summary);
    assert!(
        text.contains("cut off, 1") && text.contains("1 cut off, 3 not run yet; 1 distinct finding"),
        "{text}"
    );
    assert!(text.contains("Cut off:\n  a on 6.1: f1: the gate closed at a leak"), "{text}");
    assert!(!text.contains("f2 "), "{text}");
}

#[test]
fn a_driver_that_hardly_ran_is_not_clean() {
    let text = text(&survey(&[cell("a", "6.1", State::NotExercised, &[])]));
    assert!(text.contains("0 clean") && text.contains("1 not exercised"), "{text}");
    assert!(text.contains("Not exercised:\n  a on 6.1: it did not"), "{text}");
}

#[test]
fn a_page_takes_no_markup_from_a_guest() {
    let mut out = Vec::new();
    survey(&first()).write_html(&mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    assert!(page.contains("8 bytes &lt;lost&gt;") && !page.contains("<lost>"));
    assert!(page.contains("<td class=\"not-available\"") && page.contains("<td class=\"missing\""));
}

#[test]
fn a_summary_survives_a_round_trip() {
    let summary = survey(&first());
    let mut out = Vec::new();
    summary.write_json(&mut out).unwrap();
    assert_eq!(serde_json::from_slice::<Summary>(&out).unwrap(), summary);
}

#[test]
fn file_names_hold_nothing_that_leads_elsewhere() {
    let odd = Position { driver: "../x".into(), device: Some("a,b=/c".into()), kernel: "6.1".into() };
    assert_eq!(odd.file_stem(), "..+x@a+b++c@6.1");
    assert_eq!(place("e1000", "7.2").file_stem(), "e1000@7.2");
}
