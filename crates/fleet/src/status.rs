//! How far the runs of a store are.

use crate::claims;
use crate::store::{Aside, Store};
use crate::unfit::Unfit;
use guardrail_host::HostError;
use guardrail_report::text::clean;

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The run's id.
    pub run: String,
    /// Its jobs.
    pub jobs: usize,
    /// Jobs with a result.
    pub results: usize,
    /// Jobs that are being computed, or whose worker was killed.
    pub claimed: usize,
    /// Attempts that failed.
    pub failures: usize,
    /// Jobs that are set aside.
    pub aside: Vec<Aside>,
}

/// The runs of a store, the oldest first. Each result is read, and one that does not match does not count.
pub fn statuses(store: &Store) -> Result<Vec<Status>, HostError> {
    store.runs().into_iter().map(|id| status(store, &id)).collect()
}

/// How far a run is.
pub fn status(store: &Store, id: &str) -> Result<Status, HostError> {
    let mut status = Status { run: id.to_owned(), ..Status::default() };
    for job in store.run(id)? {
        let key = job.key();
        status.jobs += 1;
        status.failures += store.failures(&key);
        if store.result(&key).is_some() {
            status.results += 1;
        } else if let Some(aside) = store.aside(&key) {
            status.aside.push(aside);
        } else if claims::is_held(store, &key) {
            status.claimed += 1;
        }
    }
    Ok(status)
}

/// A line for each worker whose machine lacked something, and has computed nothing since.
pub fn unfit(store: &Store) -> String {
    let line = |unfit: Unfit| {
        let state = if unfit.aside { "set aside" } else { "waits" };
        let (worker, times, why) = (clean(&unfit.worker), unfit.in_a_row, clean(&unfit.why));
        format!("worker {worker} {state}: its machine could not compute {times} jobs in a row: {why}\n")
    };
    store.unfit().into_iter().map(line).collect()
}

/// The rows of a table of runs, with a head.
pub fn rows(statuses: &[Status]) -> Vec<Vec<String>> {
    let head = ["run", "jobs", "results", "computed now", "failed attempts", "set aside"].map(str::to_owned);
    let row = |status: &Status| {
        let numbers = [status.jobs, status.results, status.claimed, status.failures, status.aside.len()];
        [status.run.clone()].into_iter().chain(numbers.map(|number| number.to_string())).collect()
    };
    [head.to_vec()].into_iter().chain(statuses.iter().map(row)).collect()
}
