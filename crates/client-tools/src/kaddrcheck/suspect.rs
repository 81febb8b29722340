//! Handles accesses to memory that seems to have no owner.

use super::judge::{FREED, MemoryAccess};
use super::sites::Site;
use super::stacks::DEPTH;
use super::{KAddrCheck, pages};
use guardrail_client_api::binfmt::orc::Frame;
use guardrail_client_api::register::{RBP, RSP};
use guardrail_client_api::trace::event::level;
use guardrail_client_api::{Fault, FaultObject, Vcpu};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Most frames of a finding's stack.
const FRAMES: usize = DEPTH + 6;

/// The last exempt access of an allocator's helper. The same instruction often continues on the same
/// page.
#[derive(Default)]
pub(super) struct Exempt {
    pc: AtomicU64,
    page: AtomicU64,
    sp: AtomicU64,
}

impl KAddrCheck {
    /// Handles an access to memory that seems to have no owner.
    #[cold]
    pub(super) fn suspect(&self, vcpu: &mut Vcpu, site: Site, access: MemoryAccess) {
        if !self.attached.load(Relaxed) {
            return;
        }
        let (sp, page) = (vcpu.register(RSP), access.addr / pages::PAGE);
        let last = self.exempt.of(vcpu);
        if last.pc.load(Relaxed) == site.pc && last.page.load(Relaxed) == page && last.sp.load(Relaxed) == sp
        {
            return;
        }
        let mut stack = Vec::new();
        let frame = Frame::first(site.pc, sp, vcpu.register(RBP), true);
        self.unwinder.walk(vcpu, frame, FRAMES + 1, |frame| stack.push(frame.pc));
        // The first frame is the instruction itself.
        let Some(&caller) = stack.get(1) else {
            // Without callers, the access may be an allocator's that clears memory before it returns it.
            self.unjudged.fetch_add(1, Relaxed);
            return;
        };
        let slide = vcpu.slide().unwrap_or(0);
        if stack[1..].iter().any(|&pc| self.sites.is_own(pc.wrapping_sub(slide))) {
            let last = self.exempt.of(vcpu);
            last.pc.store(site.pc, Relaxed);
            last.page.store(page, Relaxed);
            last.sp.store(sp, Relaxed);
            return;
        }
        // For helpers with many users, the caller distinguishes faults.
        let caller = if site.together { caller } else { 0 };
        if self.findings.often(site.pc, caller) {
            return;
        }
        let Some(bad) = self.memory.shadow.first(access.addr, access.len) else { return };
        let Some(verdict) = self.memory.judge(vcpu, access, bad) else {
            return self.findings.unseen(site.pc);
        };
        if verdict.kind == FREED
            && self.memory.frees.since(self.seen.of(vcpu).load(Relaxed), verdict.object.0)
        {
            self.crossed.fetch_add(1, Relaxed);
            return;
        }
        if self.findings.again(verdict.kind, site.pc, caller) {
            return;
        }
        let task = vcpu.task().and_then(|task| vcpu.task_name(task)).unwrap_or_default();
        let level = level(vcpu.preempt_count().unwrap_or(0)).to_owned();
        let fault = Fault {
            when: guardrail_client_api::moment(),
            kind: verdict.kind.to_owned(),
            message: verdict.message,
            pc: site.pc,
            stack,
            access: Some((access.addr, access.len, access.store)),
            object: Some(FaultObject {
                address: verdict.object.0,
                size: verdict.object.1,
                class: verdict.class.to_owned(),
                name: verdict.name,
                allocated: self.stacks.frames(verdict.stacks.0),
                freed: self.stacks.frames(verdict.stacks.1),
            }),
            cpu: vcpu.index(),
            level,
            task,
            count: 1,
            contained: false,
        };
        self.findings.add(fault, caller);
    }
}
