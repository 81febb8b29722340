//! Whether a run saw enough of its drivers that "no findings" means something.

use guardrail_finding::ModuleCoverage;
use guardrail_report::Run;

/// The outcome of a run that completed and saw too little.
pub const NOT_EXERCISED: &str = "not-exercised";

/// Changes the outcome of a completed run where a driver ran no function, or a smaller part of its functions
/// than the run's floor.
pub fn judge(run: &mut Run) {
    if run.outcome != "completed" {
        return;
    }
    let floor = u64::from(run.min_coverage);
    let little = |row: &&ModuleCoverage| {
        row.functions > 0 && (row.functions_run == 0 || row.functions_run * 100 < floor * row.functions)
    };
    let rows: Vec<String> = run
        .coverage
        .iter()
        .filter(little)
        .map(|row| format!("{} ran {} of {} functions", row.module, row.functions_run, row.functions))
        .collect();
    if !rows.is_empty() {
        run.outcome = NOT_EXERCISED.to_owned();
        run.detail = Some(format!(
            "too little of the driver ran: {}; the floor is {}; give a workload that does more",
            rows.join(", "),
            if floor == 0 { "one function".to_owned() } else { format!("{floor} %") },
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(functions_run: u64, min_coverage: u32) -> Run {
        let row = ModuleCoverage { module: "drv".into(), functions_run, functions: 40, blocks: 9 };
        let coverage = vec![row];
        let mut run = Run { outcome: "completed".into(), min_coverage, coverage, ..Run::default() };
        judge(&mut run);
        run
    }

    #[test]
    fn a_run_below_the_floor_is_not_exercised() {
        assert_eq!(judged(1, 0).outcome, "completed");
        assert_eq!(judged(4, 10).outcome, "completed");
        assert_eq!(judged(0, 0).outcome, NOT_EXERCISED);
        assert_eq!(
            judged(3, 10).detail.unwrap(),
            "too little of the driver ran: drv ran 3 of 40 functions; the floor is 10 %; give a workload that does more"
        );
        // Nobody watched the driver.
        let mut run = Run { outcome: "completed".into(), min_coverage: 10, ..Run::default() };
        judge(&mut run);
        assert_eq!(run.outcome, "completed");
    }
}
