//! What the benchmarks share.

use std::process::ExitCode;

/// How tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One object
    Json,
}

/// What every comparison of setups asks.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// How often each workload is run in each setup
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// The kernel
    #[arg(long, default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// Number of guest CPUs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub smp: u8,
    /// Only try each workload once and shortly, in the last of the setups
    #[arg(long = "try")]
    pub only_try: bool,
    /// How the tables are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// The kinds of devices that are worked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A network card.
    Network,
    /// A disk.
    Disk,
    /// A sound card.
    Sound,
}

/// The driver of each kind of device.
#[derive(Debug, clap::Args)]
pub struct Drivers {
    /// The network driver
    #[arg(long, value_name = "DRIVER", default_value = "e1000")]
    network: String,
    /// The disk driver
    #[arg(long, value_name = "DRIVER", default_value = "sym53c8xx")]
    disk: String,
    /// The sound driver
    #[arg(long, value_name = "DRIVER", default_value = "snd_ens1370")]
    sound: String,
}

impl Format {
    /// Prints a table in this format.
    pub fn print(self, text: impl FnOnce() -> String, json: impl FnOnce() -> serde_json::Value) {
        match self {
            Format::Text => print!("{}", text()),
            Format::Json => println!("{:#}", json()),
        }
    }
}

impl Drivers {
    /// That of a device of this kind.
    pub fn of(&self, device: Device) -> &str {
        match device {
            Device::Network => &self.network,
            Device::Disk => &self.disk,
            Device::Sound => &self.sound,
        }
    }
}

/// Those of a program's workloads that an option names; all where it names none.
pub fn chosen<T: Copy>(
    option: &str,
    all: &[T],
    name: impl Fn(&T) -> &str,
    names: &[String],
) -> Result<Vec<T>, String> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let known = || all.iter().map(&name).collect::<Vec<_>>().join(", ");
    let find = |wanted: &String| all.iter().copied().find(|one| name(one) == wanted);
    names
        .iter()
        .map(|wanted| {
            find(wanted).ok_or_else(|| format!("{option} has no '{wanted}'; there are {}", known()))
        })
        .collect()
}

/// Why a benchmark ends without a result.
pub enum Failure {
    /// The options are wrong.
    Usage(String),
    /// The measurement failed.
    Run(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Run(why)
    }
}

impl Failure {
    /// Prints why, and gives the exit status.
    pub fn report(self) -> ExitCode {
        let (Failure::Usage(why) | Failure::Run(why)) = &self;
        eprintln!("error: {why}");
        ExitCode::from(if matches!(self, Failure::Usage(_)) { 2 } else { 3 })
    }
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

/// The mean of ratios of paired runs, and the interval that has the true one with 95% confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The geometric mean.
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Of pairs of a figure and its base, from runs beside each other. `None` where there are not two pairs.
    pub fn of(figures: &[f64], bases: &[f64]) -> Option<Interval> {
        let logs: Vec<f64> = figures.iter().zip(bases).map(|(figure, base)| (figure / base).ln()).collect();
        let (mean, error) = mean_and_error(&logs)?;
        let reach = students_t(logs.len() - 1) * error;
        Some(Interval { mean: mean.exp(), low: (mean - reach).exp(), high: (mean + reach).exp() })
    }

    /// The arithmetic mean of several that do not depend on each other.
    pub fn average(all: &[Interval]) -> Option<Interval> {
        let n = all.len() as f64;
        let mean = all.iter().map(|one| one.mean).sum::<f64>() / n;
        let reach = all.iter().map(|one| ((one.high - one.low) / 2.0).powi(2)).sum::<f64>().sqrt() / n;
        (!all.is_empty()).then_some(Interval { mean, low: mean - reach, high: mean + reach })
    }
}

/// The median of ratios of paired runs, and the interval that has the true one with 95% confidence, by resampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resampled {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Resampled {
    /// How often pairs are drawn anew. The ends of the interval then vary by far less than its width.
    const DRAWS: usize = 4000;

    /// Of pairs of a figure and its base, from runs beside each other. `None` where there is no pair, or a base of 0.
    pub fn of(figures: &[f64], bases: &[f64]) -> Option<Resampled> {
        let ratios: Vec<f64> = figures.iter().zip(bases).map(|(figure, base)| figure / base).collect();
        if ratios.is_empty() || figures.len() != bases.len() || !ratios.iter().all(|ratio| ratio.is_finite())
        {
            return None;
        }
        // The same pairs are to give the same interval. The constants are those of Knuth's MMIX.
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ratios[(state >> 33) as usize % ratios.len()]
        };
        let mut medians: Vec<f64> =
            (0..Self::DRAWS).map(|_| median((0..ratios.len()).map(|_| draw()).collect())).collect();
        medians.sort_by(f64::total_cmp);
        let (low, high) = (medians[Self::DRAWS / 40], medians[Self::DRAWS - 1 - Self::DRAWS / 40]);
        Some(Resampled { median: median(ratios), low, high })
    }
}

/// The mean, and its standard error.
fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (mean, (squares / (n - 1.0) / n).sqrt()))
}

/// The 97.5% quantile of Student's t distribution (Abramowitz and Stegun, 26.7.5, exact to 0.3% from 4 degrees on).
fn students_t(degrees: usize) -> f64 {
    const NORMAL: f64 = 1.959_963_985;
    match degrees {
        0 => f64::INFINITY,
        1 => 12.706,
        2 => 4.303,
        3 => 3.182,
        _ => {
            let (n, x) = (degrees as f64, NORMAL);
            let first = (x.powi(3) + x) / 4.0;
            let second = (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0;
            let third = (3.0 * x.powi(7) + 19.0 * x.powi(5) + 17.0 * x.powi(3) - 15.0 * x) / 384.0;
            x + first / n + second / n.powi(2) + third / n.powi(3)
        }
    }
}

impl std::fmt::Display for Slowdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.lowest, self.highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, wanted) in [(3, 3.182), (4, 2.776), (9, 2.262), (29, 2.045)] {
            let found = students_t(degrees);
            assert!((found - wanted).abs() < 0.015, "{degrees}: {found}");
        }
    }

    #[test]
    fn resampling_finds_the_spread() {
        let bases = [100.0; 41];
        let figures: Vec<f64> = (0..41).map(|at| 80.0 + f64::from(at)).collect();
        let wide = Resampled::of(&figures, &bases).unwrap();
        // Order statistics: the 14th and the 28th of 41 are the exact interval of their median.
        assert!(
            wide.median == 1.0 && (wide.low - 0.935).abs() < 0.02 && (wide.high - 1.065).abs() < 0.02,
            "{wide:?}"
        );
        let exact = Resampled::of(&[3.0, 6.0], &[2.0, 4.0]).unwrap();
        assert_eq!((exact.median, exact.low, exact.high), (1.5, 1.5, 1.5));
        assert_eq!(Resampled::of(&[], &[]), None);
        assert_eq!(Resampled::of(&[1.0], &[0.0]), None);
    }

    #[test]
    fn intervals_hold_the_ratio() {
        let bases = [100.0, 110.0, 90.0];
        let figures = bases.map(|base| base * 1.05);
        let exact = Interval::of(&figures, &bases).unwrap();
        assert!((exact.mean - 1.05).abs() < 1e-9 && exact.high - exact.low < 1e-9);
        let wide = Interval::of(&[105.0, 107.0, 103.0], &[100.0; 3]).unwrap();
        // Two percent of spread, of three pairs: 4.303 * 2 / sqrt(3).
        assert!((wide.high - 1.05 - 0.05).abs() < 0.003, "{wide:?}");
        assert_eq!(Interval::of(&[1.0], &[1.0]), None);
        let both = Interval::average(&[exact, wide]).unwrap();
        assert!((both.high - both.low) * 2.0 - (wide.high - wide.low) < 1e-9);
    }
}
