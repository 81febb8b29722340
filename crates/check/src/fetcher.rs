//! Fetches debug files for a process that is confined, and so neither runs programs nor reaches the network.
//!
//! The process starts the fetcher before it confines itself, and sends it one request.

use guardrail_host::folders::{parser, program};
use guardrail_host::{HostError, Progress, symbols};
use guardrail_vm::Cache;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::modules::{ModuleFile, Modules};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The longest request in bytes.
const MAX_REQUEST: u64 = 1 << 20;

/// A kernel and some of its modules.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    release: String,
    image: PathBuf,
    modules: PathBuf,
    drivers: Vec<PathBuf>,
}

/// A process that waits for its request.
pub struct Fetcher(Child);

impl Fetcher {
    /// Starts the process.
    pub fn start() -> Result<Fetcher, HostError> {
        let program = program()?;
        let mut command = Command::new(&program);
        command.arg("internal-symbols").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map(Fetcher).map_err(HostError::io("start", program.display()))
    }

    /// Has the debug files fetched that the cache lacks, and shows each step.
    pub fn fetch(
        mut self,
        kernel: &Kernel,
        drivers: &[ModuleFile],
        progress: &Progress,
    ) -> Result<(), HostError> {
        let lost = |error| HostError::io("ask", "the process that fetches debug information")(error);
        let request = Request {
            release: kernel.release.clone(),
            image: kernel.vmlinuz.clone(),
            modules: kernel.modules.clone(),
            drivers: drivers.iter().map(|driver| driver.path.clone()).collect(),
        };
        let text = serde_json::to_vec(&request).map_err(|error| lost(error.into()))?;
        // The process reads to the end of its input, which is closed here.
        let input = self.0.stdin.take();
        input.map_or(Ok(()), |mut input| input.write_all(&text)).map_err(lost)?;
        for line in self.0.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            progress.step(&line.map_err(lost)?);
        }
        Ok(())
    }
}

/// Answers one request on standard input with lines about each step (`guardrail internal-symbols`).
pub fn serve() -> Result<(), HostError> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(MAX_REQUEST).read_to_end(&mut text);
    read.map_err(HostError::io("read", "the request for debug information"))?;
    // The process that asks found no trace, or ended.
    if text.is_empty() {
        return Ok(());
    }
    let request: Request = serde_json::from_slice(&text)
        .map_err(|error| HostError::Run(format!("the request for debug information is damaged: {error}")))?;
    let Request { release, image, modules, drivers } = request;
    let kernel = Kernel { release, vmlinuz: image, modules };
    let parser = parser()?;
    let known = Modules::of(&kernel, &parser)?;
    let plans = drivers.iter().map(|path| known.plan(&path.display().to_string()));
    let drivers = plans.map(|plan| Ok(plan?.driver)).collect::<Result<Vec<_>, HostError>>()?;
    let mut tell = |step: &str| _ = writeln!(io::stdout(), "{step}");
    symbols::fetch(&Cache::open()?, &parser, &kernel, &drivers.iter().collect::<Vec<_>>(), &mut tell);
    Ok(())
}
