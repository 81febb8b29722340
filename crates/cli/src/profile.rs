//! `guardrail profile`: clients that watch a running kernel.

use crate::args::ProfileArgs;
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_profile::{Format, Profile, ProfilePlan};

/// Runs a workload under clients and prints what they report.
pub fn run(args: &ProfileArgs) -> Result<Status, CliError> {
    print(&guardrail_profile::run(&plan(args))?, args.format)
}

/// Prints a profile; returns the exit status.
pub fn print(profile: &Profile, format: Format) -> Result<Status, CliError> {
    output::text(&profile.text(format)?)?;
    profile.status()
}

/// The plan that the arguments describe.
pub fn plan(args: &ProfileArgs) -> ProfilePlan {
    ProfilePlan {
        clients: args.clients.clone(),
        scope: args.scope.clone(),
        workload: args.workload.clone(),
        drivers: args.drivers.clone(),
        kernel: args.kernel.clone(),
        device: args.device.clone(),
        from: args.from.clone(),
        until: args.until.clone(),
        detached: args.detached,
        smp: args.smp,
        memory: args.memory,
        no_kaslr: args.no_kaslr,
        append: args.append.clone(),
        timeout: args.timeout,
        variables: args.variables.clone(),
        parameters: args.parameters.clone(),
        files: Vec::new(),
        qemu: args.qemu_arg.clone(),
        out: args.out.clone(),
    }
}
