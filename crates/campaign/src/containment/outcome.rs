//! The results of the runs, one by one and together.

use super::machinery::{Upset, When};
use super::zoo_driver::{Harm, ZooDriver};
use crate::ContainmentPlan;
use guardrail_host::Status;
use serde::Serialize;
use std::fmt;

/// The name and version of the JSON object.
const SCHEMA: &str = "guardrail-containment/1";

/// The treatment of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The fault is let through.
    Permissive,
    /// The fault is contained.
    Stringent,
}

impl Mode {
    /// The name of the mode in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Permissive => "permissive",
            Mode::Stringent => "stringent",
        }
    }
}

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The number of the run in the experiment.
    pub number: usize,
    /// The driver of the run.
    pub subject: ZooDriver,
    /// The fault that was planted.
    pub fault: Option<String>,
    /// The seed of the fault's choice of a request.
    pub seed: u32,
    /// Whether the finding was contained or let through.
    pub mode: Mode,
    /// Exit status of the run; `None` where a signal ended it.
    pub status: Option<i32>,
    /// The report's word for how the run ended; `None` without a report.
    pub ended: Option<String>,
    /// True where the report names the fault: checker, kind, function and line.
    pub named: bool,
    /// The kinds of all findings.
    pub findings: Vec<String>,
    /// The harm that was found outside of the guest.
    pub harm: Harm,
    /// True where the fault happened, or the run ended before the driver could report that it did not.
    pub planted: bool,
    /// The failure of the machinery, if any.
    pub upset: Option<Upset>,
    /// Whether the failure happened, and whether before the work was over.
    pub when: When,
    /// True where a finding was contained, whatever followed.
    pub found: bool,
    /// The error message that the run ended with.
    pub error: Option<String>,
    /// True where the run took too long to end after the failure.
    pub late: bool,
    /// Processes of the run that did not end with it, and files that other runs could meet.
    pub left: Vec<String>,
    /// Duration of the run in seconds.
    pub wall_seconds: f64,
}

impl Outcome {
    /// True where the fault had its effect outside of the guest.
    fn reached(&self) -> bool {
        // A process that is killed leaves incomplete writes.
        let killed = self.upset.is_some_and(Upset::kills_device);
        self.harm.wrong > 0 || self.harm.partial > 0 && !killed
    }

    /// True where the end of the run reports the failure of the machinery.
    fn is_reported(&self) -> bool {
        let error = self.error.as_deref().unwrap_or_default();
        self.upset.is_none_or(|upset| {
            !self.late && upset.is_reported(self.status, self.ended.as_deref(), error, self.when, self.found)
        })
    }

    /// True for a run without a fault that does all of its work, without findings.
    fn is_sound(&self) -> bool {
        self.status == Some(Status::Clean as i32)
            && self.harm.complete
            && !self.reached()
            && self.findings.is_empty()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.fault.as_deref().unwrap_or("no fault");
        let how = self.upset.map_or(self.mode.name(), Upset::name);
        write!(f, "{} {fault}, seed {}, {how}: ", self.subject.driver(), self.seed)?;
        match self.harm.told.first() {
            None if self.reached() => write!(f, "harmed")?,
            None => write!(f, "intact")?,
            Some(first) => write!(f, "harmed ({first})")?,
        }
        write!(f, ", {} done", self.harm.done)?;
        match (self.named, self.findings.is_empty()) {
            (true, _) => write!(f, ", named")?,
            (false, true) => write!(f, ", nothing found")?,
            (false, false) => write!(f, ", found: {}", self.findings.join("; "))?,
        }
        write!(f, ", status {}", self.status.unwrap_or(-1))?;
        if !self.is_reported() {
            let late = if self.late { "too late, " } else { "" };
            write!(f, " (not as it should be: {late}{})", self.error.as_deref().unwrap_or("no error"))?;
        }
        if !self.left.is_empty() {
            write!(f, ", left behind: {}", self.left.join("; "))?;
        }
        write!(f, ", {:.0} s", self.wall_seconds)
    }
}

/// A row of the table: the runs with one fault.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The driver's folder in the zoo.
    pub driver: String,
    /// The fault's name.
    pub fault: String,
    /// How many were planted, in either mode.
    pub faults: usize,
    /// ... had their effect outside of the guest when they were let through.
    pub reached: usize,
    /// ... were named by the report when they were let through.
    pub named: usize,
    /// ... were contained: the run ended with the exit status for that.
    pub contained: usize,
    /// ... left everything outside of the guest intact when they were contained.
    pub intact: usize,
}

/// A row of the table of failures of the machinery.
#[derive(Clone, Debug, Serialize)]
pub struct UpsetRow {
    /// The failure.
    pub upset: Upset,
    /// How many runs had this failure planned.
    pub runs: usize,
    /// ... had it before the work was over.
    pub in_time: usize,
    /// ... contained a planted fault before the failure, or by it.
    pub contained: usize,
    /// ... left everything outside of the guest intact.
    pub intact: usize,
    /// ... reported it by exit status and message.
    pub told: usize,
    /// ... left no process running, and no socket and no log.
    pub clean: usize,
}

/// The result of all runs together.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Name and version of this object.
    pub schema: &'static str,
    /// The kernel's name or path.
    pub kernel: String,
    /// The first seed.
    pub seed: u32,
    /// True where containment holds. Everything is intact where faults were contained, every fault was
    /// contained, most did harm when they were let through, and runs without a fault worked.
    pub holds: bool,
    /// The reasons where it does not hold; empty otherwise.
    pub why: Vec<String>,
    /// A row for each fault.
    pub rows: Vec<Row>,
    /// A row for each failure of the machinery.
    pub machinery: Vec<UpsetRow>,
    /// All runs.
    pub runs: Vec<Outcome>,
}

impl Summary {
    /// Sums up the runs.
    pub fn new(wanted: &ContainmentPlan, runs: Vec<Outcome>) -> Summary {
        let rows = rows(&runs);
        let machinery = upset_rows(&runs);
        let sum = |count: fn(&Row) -> usize| rows.iter().map(count).sum::<usize>();
        let mut why = Vec::new();
        let mut demand = |holds: bool, text: String| {
            if !holds {
                why.push(text);
            }
        };
        let faults = sum(|row| row.faults);
        if !wanted.let_through {
            demand(
                sum(|row| row.intact) == faults,
                "a fault that should have been contained did harm".into(),
            );
            demand(sum(|row| row.contained) == faults, "a fault was not contained".into());
        }
        demand(sum(|row| row.named) == faults, "a report did not name the fault".into());
        // An experiment whose faults do no harm would prove nothing.
        let few = sum(|row| row.reached) * 2 < faults;
        demand(!few, "less than half of the faults did harm when they were let through".into());
        for row in &machinery {
            let name = row.upset.name();
            demand(row.intact == row.runs, format!("{name}: harm was done"));
            demand(
                row.told == row.runs,
                format!("{name}: a run did not end in time with the right status and message"),
            );
        }
        demand(runs.iter().all(|run| run.left.is_empty()), "a run left something behind".into());
        for run in runs.iter().filter(|run| run.fault.is_none() && run.upset.is_none() && !run.is_sound()) {
            demand(false, format!("a run without a fault did not work as it should: {run}"));
        }
        Summary {
            schema: SCHEMA,
            kernel: wanted.kernel.clone(),
            seed: wanted.seed,
            holds: why.is_empty(),
            why,
            rows,
            machinery,
            runs,
        }
    }

    /// The table as text.
    pub fn text(&self) -> String {
        let head = ["driver", "fault", "faults", "reached", "named", "contained", "intact"];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        let mut total = Row { driver: "all".into(), ..Row::default() };
        for row in &self.rows {
            total.faults += row.faults;
            total.reached += row.reached;
            total.named += row.named;
            total.contained += row.contained;
            total.intact += row.intact;
        }
        for row in self.rows.iter().chain([&total]) {
            let mut cells = vec![row.driver.clone(), row.fault.clone()];
            let counts = [row.faults, row.reached, row.named, row.contained, row.intact];
            cells.extend(counts.map(|count| count.to_string()));
            table.push(cells);
        }
        let mut text = guardrail_report::columns::table(&table);
        text += "\nreached: did harm outside of the guest when let through; named: the report names checker, kind, function and line;\n\
                 contained: the run ended with status 4; intact: no harm outside of the guest then.\n";
        if !self.machinery.is_empty() {
            let head = ["machinery", "runs", "in time", "contained", "intact", "reported", "nothing left"];
            let mut table = vec![head.map(str::to_owned).to_vec()];
            for row in &self.machinery {
                let counts = [row.runs, row.in_time, row.contained, row.intact, row.told, row.clean];
                let mut cells = vec![row.upset.name().to_owned()];
                cells.extend(counts.map(|count| count.to_string()));
                table.push(cells);
            }
            text += &format!("\n{}", guardrail_report::columns::table(&table));
            text += "\nin time: while the driver worked; contained: a planted fault came first, status 4; reported: the run ended in time, with\n\
                     the right status and message; nothing left: no process, socket or log.\n";
        }
        for why in &self.why {
            text += &format!("It does not hold: {why}.\n");
        }
        if self.holds {
            text += "Containment holds.\n";
        }
        text
    }
}

fn rows(runs: &[Outcome]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for run in runs {
        let Some(fault) = run.fault.as_ref().filter(|_| run.upset.is_none()) else { continue };
        let driver = run.subject.driver();
        let at =
            rows.iter().position(|row| row.driver == driver && row.fault == *fault).unwrap_or_else(|| {
                rows.push(Row { driver: driver.to_owned(), fault: fault.clone(), ..Row::default() });
                rows.len() - 1
            });
        let row = &mut rows[at];
        match run.mode {
            Mode::Permissive => {
                row.faults += 1;
                row.reached += usize::from(run.reached());
                row.named += usize::from(run.named);
            }
            Mode::Stringent => {
                row.contained += usize::from(run.status == Some(Status::Contained as i32));
                row.intact += usize::from(!run.reached());
            }
        }
    }
    rows
}

fn upset_rows(runs: &[Outcome]) -> Vec<UpsetRow> {
    let mut rows: Vec<UpsetRow> = Vec::new();
    for run in runs {
        let Some(upset) = run.upset else { continue };
        let at = rows.iter().position(|row| row.upset == upset).unwrap_or_else(|| {
            rows.push(UpsetRow { upset, runs: 0, in_time: 0, contained: 0, intact: 0, told: 0, clean: 0 });
            rows.len() - 1
        });
        let row = &mut rows[at];
        row.runs += 1;
        row.in_time += usize::from(run.when == When::InTime);
        row.contained += usize::from(run.status == Some(Status::Contained as i32));
        row.intact += usize::from(!run.reached());
        row.told += usize::from(run.is_reported());
        row.clean += usize::from(run.left.is_empty());
    }
    rows
}
