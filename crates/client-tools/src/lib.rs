//! The clients that come with Guardrail, in one plugin.

mod blocks;
mod calls;
mod code;
mod count;
mod coverage;
mod flows;
mod irq;
mod kaddrcheck;
mod memtrace;
mod mix;
mod null;
mod stackcheck;

guardrail_client_api::clients!(
    blocks::Blocks,
    calls::Calls,
    code::Code,
    count::Count,
    coverage::Coverage,
    irq::Irq,
    kaddrcheck::KAddrCheck,
    memtrace::MemTrace,
    mix::Mix,
    null::Null,
    stackcheck::StackCheck,
);
