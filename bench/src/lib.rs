//! What the benchmarks share.

pub mod process;

use std::process::ExitCode;

/// How tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One object
    Json,
}

/// The program's arguments; where they are wrong or help was asked for, that is printed, and the program ends with this status.
pub fn arguments<T: clap::Parser>() -> Result<T, ExitCode> {
    T::try_parse().map_err(|error| {
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { 2 } else { 0 })
    })
}

/// Tells why the program ends with this status.
pub fn failed(why: String, status: u8) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::from(status)
}

/// The median; 0 of no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Figures against a base: how many times as slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// The median.
    pub median: f64,
    /// The least.
    pub lowest: f64,
    /// The most.
    pub highest: f64,
}

impl Slowdown {
    /// Of `figures` against `base`; of rates more is better, of times less. `None` without figures.
    pub fn of(figures: &[f64], base: f64, rates: bool) -> Option<Slowdown> {
        let mut ratios: Vec<f64> =
            figures.iter().map(|figure| if rates { base / figure } else { figure / base }).collect();
        ratios.sort_by(f64::total_cmp);
        let (lowest, highest) = (*ratios.first()?, *ratios.last()?);
        Some(Slowdown { median: median(ratios), lowest, highest })
    }
}

impl std::fmt::Display for Slowdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.lowest, self.highest)
    }
}
