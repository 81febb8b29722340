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

impl std::fmt::Display for Slowdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.lowest, self.highest)
    }
}
