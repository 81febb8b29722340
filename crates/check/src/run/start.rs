//! The start of a run: the log, the tracer's configuration, the analysis process, and devices outside the driver VM.

use crate::analysis::supervisor::Analysis;
use crate::analysis::wire::Job;
use crate::gate::outside::Outside;
use crate::input::{AnalysisInput, ModuleFile, asks_for_redzones};
use crate::on_finding::OnFinding;
use crate::plan::{GateKind, Mode, Observe, RunPlan};
use crate::run::Ready;
use crate::run::synthetic::Synthetic;
use crate::run::tracer::{self, DeviceHolding, Holding};
use crate::snapshots::{self, Snapshots};
use crate::trace_head;
use guardrail_host::HostError;
use guardrail_host::drivers::{others, watched};
use guardrail_host::folders::{LogFolder, absolute};
use guardrail_host::progress::{self, Loudness};
use guardrail_trace::log::{Log, LogOptions, MergedReader};
use guardrail_vm::run::{Limits, Options, Plugin, Watched};
use guardrail_vm::symbols;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The folder of the cache for guests that have booted.
const KEPT: &str = "booted";
/// How long a full log may stay full where no device access waits for it.
const LOG_WAIT: Duration = Duration::from_secs(60);

/// A run whose log is open and whose analysis is ready; only the guest has not started.
pub struct Started<'a> {
    pub(super) ready: Ready<'a>,
    pub(super) shared: LogFolder,
    pub(super) log: Log,
    pub(super) options: Options,
    pub(super) analysis: Option<Analysis>,
    pub(super) outside: Option<Outside>,
    pub(super) synthetic: Option<Synthetic>,
    pub(super) snapshots: Option<Snapshots>,
    pub(super) on_finding: OnFinding,
    pub(super) until: Option<Until<'a>>,
}

/// Asks again and again whether the run shall end now, and returns why.
pub type Until<'a> = Box<dyn FnMut() -> Option<String> + 'a>;

impl<'a> Started<'a> {
    /// A reader of the log, where the run holds accesses; it must read to the end.
    pub fn reader(&self) -> Result<MergedReader, HostError> {
        Ok(MergedReader::attach(&self.log)?)
    }

    /// Ends the run where `until` gives a reason.
    pub fn until(&mut self, until: Until<'a>) {
        self.until = Some(until);
    }
}

impl<'a> Ready<'a> {
    /// Starts everything but the guest. Call it on the thread that will watch the run: the gate ends with that thread.
    pub fn start(self) -> Result<Started<'a>, HostError> {
        let (plan, host) = (self.plan, self.host);
        // From here on a signal must not end the program before the run is cleaned up.
        host.signals.run_begins();
        if progress::loudness() == Loudness::Verbose {
            self.describe().lines().for_each(progress::detail);
        }
        host.progress.step("reading the kernel");
        let modules = self.copy_modules()?;
        let shared = LogFolder::new()?;
        let config = self.folder.path().join("config.json");
        let mut options = Options { reach: tracer::reach(&shared.log()), ..self.options(&config) };
        let log = Log::create_with(shared.log(), &self.log_options())?;
        let mut input = self.input(modules);
        // Both read the kernel, which takes most of the time: the analysis, and what configures the tracer.
        let mut analysis = match plan.observe {
            Observe::Check => {
                progress::detail("starting the analysis process");
                Some(Analysis::start(&self.job(&shared, input.clone())?)?)
            }
            Observe::None | Observe::Trace => None,
        };
        input.hooks = tracer::write_config(&self.prepared, &shared.log(), self.holding(&options), &config)?;
        let snapshots = match plan.snapshots {
            Some(_) => Some(Snapshots::new(self.folder.path(), &input, options.memory_mib)?),
            None => None,
        };
        if let Some(analysis) = &mut analysis {
            analysis.ready(input.hooks, &|| host.signals.interrupted())?;
        }
        let outside = match plan.gate {
            GateKind::VfioUser => {
                let (log, strict) = (shared.log(), self.strict());
                Some(Outside::start(plan, &self.prepared, &mut options, &log, strict)?)
            }
            GateKind::Vmm | GateKind::Off => None,
        };
        let synthetic = Synthetic::start(&self.prepared, &mut options)?;
        options.watched = options.containable.then(|| {
            let log = log.clone();
            let other = outside.as_ref().map(Outside::process);
            Watched { closed: Arc::new(move || log.gate_closed().is_some()), other }
        });
        let on_finding = OnFinding::new(plan.on_finding.as_deref());
        Ok(Started {
            ready: self,
            shared,
            log,
            options,
            analysis,
            outside,
            synthetic,
            snapshots,
            on_finding,
            until: None,
        })
    }

    /// Copies the watched modules into the run folder: the analysis and a later debugger read them there.
    fn copy_modules(&self) -> Result<Vec<ModuleFile>, HostError> {
        let mut modules = Vec::new();
        for module in watched(&self.prepared) {
            let path = self.folder.path().join(format!("{}.ko", module.name));
            fs::write(&path, &module.bytes).map_err(HostError::io("write", path.display()))?;
            let debug = symbols::cached(&self.host.cache, module);
            modules.push(ModuleFile { name: module.name.clone(), path, debug });
        }
        Ok(modules)
    }

    pub(super) fn options(&self, config: &Path) -> Options {
        let RunPlan { observe, cpus, threads, kaslr, iommu, memory_mib, time_limit, .. } = *self.plan;
        let plugins = match observe {
            Observe::None => Vec::new(),
            _ => vec![Plugin { library: self.tracer.clone(), config: config.to_path_buf() }],
        };
        Options {
            cpus,
            threads,
            plugins,
            variables: self.variables(),
            limits: Limits { total: time_limit, ..Limits::default() },
            kaslr,
            iommu,
            memory_mib,
            kernel_arguments: self.plan.kernel_arguments.clone(),
            whole_log: true,
            forwards: self.plan.forwards.clone(),
            rerun: self.plan.rerun.clone(),
            qemu_arguments: self.plan.qemu_arguments.clone(),
            containable: self.policy.is_some(),
            kept: self.plan.kept_boot.then(|| self.host.cache.path(KEPT)),
            ..Options::new(self.folder.path())
        }
    }

    fn variables(&self) -> Vec<(String, String)> {
        let read = |(name, _): &&(String, String)| {
            self.prepared.refuse_unread(std::iter::once(name.as_str())).is_ok()
        };
        let scheduling = self.plan.held.iter().flat_map(|held| &held.variables);
        self.plan.offered.iter().filter(read).chain(&self.plan.variables).chain(scheduling).cloned().collect()
    }

    /// Whether an access that bypassed the gate closes it; `None` where no device access is held.
    fn strict(&self) -> Option<bool> {
        self.policy.as_ref().map(|policy| policy.mode != Mode::Permissive)
    }

    fn holding(&self, options: &Options) -> Holding {
        let posts = self.plan.posts();
        let limit = self.plan.hold_limit;
        let device = |strict| DeviceHolding { memory: options.memory(), limit, strict, posts };
        let held = self.plan.held.as_ref().map(|held| held.holds.clone());
        let holds = held.unwrap_or_else(|| tracer::samples(self.plan));
        Holding { holds, gate: self.strict().map(device) }
    }

    /// What the analysis reads; the hooks are not known yet.
    fn input(&self, modules: Vec<ModuleFile>) -> AnalysisInput {
        let other = |module: &guardrail_vm::modules::ModuleFile| ModuleFile {
            name: module.name.clone(),
            path: module.path.clone(),
            debug: None,
        };
        AnalysisInput {
            kernel: self.prepared.kernel.vmlinuz.clone(),
            kernel_debug: symbols::cached_kernel(&self.host.cache, &self.prepared.kernel),
            modules,
            others: others(&self.prepared).map(other).collect(),
            tools: self.plan.tools.clone(),
            hooks: Vec::new(),
            redzones: asks_for_redzones(&self.plan.kernel_arguments),
        }
    }

    fn log_options(&self) -> LogOptions {
        LogOptions {
            words_per_ring: self.plan.ring_words,
            // A vCPU that waits for room in the log holds the next device access, too.
            wait_limit: if self.policy.is_some() { self.plan.hold_limit } else { LOG_WAIT },
            readers: match self.plan.observe {
                Observe::Check => {
                    1 + u32::from(self.plan.record.is_some()) + u32::from(self.plan.held.is_some())
                }
                Observe::None | Observe::Trace => 0,
            },
            ..LogOptions::new(self.plan.cpus.into())
        }
    }

    fn job(&self, shared: &LogFolder, input: AnalysisInput) -> Result<Job, HostError> {
        Ok(Job {
            log: shared.log(),
            record: self.plan.record.as_deref().map(absolute).transpose()?,
            meta: trace_head::new(self.plan, &self.prepared),
            input,
            policy: self.policy.clone(),
            schedule: self.plan.reader_schedule(),
            saves: snapshots::saves(self.plan),
        })
    }
}
