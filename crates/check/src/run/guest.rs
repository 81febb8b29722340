//! The guest of a run, and all events that can end it.

use crate::analysis::supervisor::Analysis;
use crate::gate;
use crate::gate::outside::Outside;
use crate::on_finding::OnFinding;
use crate::run::printed::Printed;
use crate::run::synthetic::Synthetic;
use crate::snapshots::Snapshots;
use guardrail_host::folders::LogFolder;
use guardrail_host::progress::detail;
use guardrail_host::{Host, HostError};
use guardrail_trace::log::{FailReason, Log};
use guardrail_vm::prepare::Prepared;
use guardrail_vm::progress::Progress;
use guardrail_vm::run::{Finished, Options, Save, Stop, Watch};
use std::cell::RefCell;

/// The processes and files around a guest.
pub struct Guest<'a> {
    /// The log that the tracer writes.
    pub log: &'a Log,
    /// The log's folder.
    pub shared: &'a LogFolder,
    /// The services of this machine.
    pub host: &'a Host,
    /// The analysis process; `None` where nobody reads the log.
    pub analysis: Option<&'a mut Analysis>,
    /// The gate outside the driver VM; `None` without one.
    pub outside: Option<&'a Outside>,
    /// The synthetic devices; `None` without one.
    pub synthetic: Option<&'a Synthetic>,
    /// The folder for snapshots at findings; `None` without snapshots.
    pub snapshots: Option<&'a Snapshots>,
    /// The command that runs at findings; `None` without one.
    pub on_finding: Option<&'a mut OnFinding>,
    /// What may end the run before the workload does; `None` where nothing else does.
    pub until: Option<&'a mut (dyn FnMut() -> Option<String> + 'a)>,
}

impl Guest<'_> {
    /// Runs the guest to its end. It ends early where the user, the log, the analysis or the outer gate asks for it.
    pub fn run(self, prepared: &Prepared, options: &Options) -> Result<Finished, HostError> {
        let Guest { log, shared, host, analysis, outside, synthetic, snapshots, mut on_finding, mut until } =
            self;
        let analysis = RefCell::new(analysis);
        let mut printed = Printed::new(&options.folder);
        let mut save = snapshots.map(|snapshots| {
            snapshots.saving(&host.progress, |finding| {
                if let Some(analysis) = analysis.borrow_mut().as_mut() {
                    analysis.go_on(finding);
                }
            })
        });
        let mut watch = Watch {
            progress: &mut |time, line| {
                // Every process has opened the log by now. The name is removed now, so that no end of the run
                // leaves it behind.
                shared.unlink();
                if let Progress::Output(text) = line {
                    printed.line(text);
                    return host.progress.printed(text);
                }
                host.progress.guest(time, &line.to_string());
            },
            stop: &mut || {
                if host.signals.interrupted() {
                    return Some(Stop::Interrupted);
                }
                let found = analysis.borrow_mut().as_mut().map(|analysis| analysis.found());
                for found in found.into_iter().flatten() {
                    host.progress.found(&found.checker, &found.kind, &found.action);
                    if let Some(command) = on_finding.as_mut() {
                        command.run(&found);
                    }
                    if let Some(snapshots) = snapshots.filter(|_| found.waits) {
                        snapshots.want(&found.id);
                    }
                }
                let failure = analysis.borrow_mut().as_mut().and_then(|analysis| analysis.failure());
                if let Some(why) = failure {
                    log.fail(FailReason::ReaderDied);
                    return Some(Stop::Because(why));
                }
                if let Some(why) = outside.and_then(Outside::failure) {
                    return Some(Stop::Because(why));
                }
                if let Some(why) = synthetic.and_then(Synthetic::failure) {
                    return Some(Stop::Because(why));
                }
                if let Some(why) = until.as_mut().and_then(|until| until()) {
                    return Some(Stop::Because(why));
                }
                log.failed().map(|reason| Stop::Because(reason.to_string()))
            },
            activity: &mut || analysis.borrow_mut().as_mut().map_or(0, |analysis| analysis.words()),
            closed: &mut || {
                let (devices, why) = gate::closed(log)?;
                let Some(outside) = outside else { return Some((devices, why)) };
                outside.contain(&why);
                Some((Vec::new(), why))
            },
            save: save.as_mut().map(|save| save as &mut dyn Save),
        };
        detail("starting QEMU, and waiting for the guest's kernel to boot");
        Ok(guardrail_vm::run::run(prepared, options, &mut watch)?)
    }
}
