//! Table 5.6: what a single access to a register costs.

use super::Arguments;
use super::run::{self, Guest, Sample};
use super::setups::Setup;
use super::table::Row;

/// Accesses of each kind in one run.
const ACCESSES: u32 = 20_000;
/// The driver, and the variable that names its folder.
const DRIVER: &str = "zoo/registers";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/zoo");

/// The kinds of accesses by the names that the guest uses for them.
const KINDS: [(&str, &str); 4] = [
    ("read", "register read"),
    ("write", "register write"),
    ("read_helper", "register read by ioread32"),
    ("write_helper", "register write by iowrite32"),
];

/// Times accesses to a register of QEMU's `edu` device.
pub fn run(arguments: &Arguments, setup: &Setup) -> Result<Vec<(Row, Sample)>, String> {
    let words = ["--set".to_owned(), format!("ACCESSES={ACCESSES}")];
    let guest = Guest::start(DRIVER, arguments, setup, &words, &[("GUARDRAIL_ZOO", FOLDER)])?;
    let (run, processor) = guest.finish(setup, arguments)?;
    let sample = |(name, title): &(&str, &'static str)| {
        let taken = run::measured(&run, &format!("{name}-")).ok_or("the guest printed no time")?;
        let figure = taken / f64::from(ACCESSES);
        Ok((
            Row::time(title, "registers", "ns"),
            Sample { figure, processor, held: run::held(&run), ..Sample::default() },
        ))
    };
    KINDS.iter().map(sample).collect()
}
