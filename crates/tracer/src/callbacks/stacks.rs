//! Walks the kernel's stack above the driver.

use crate::state::{RBP, Tracer, Vcpu};
use guardrail_binfmt::orc::Frame;
use guardrail_plugin::cpu::Cpu;
use guardrail_plugin::unwind::Guest;
use guardrail_trace::event::{Head, Kind, MAX_STACK, StackFrame};

/// Stacks of a vCPU from which on walks end where code was interrupted. Interrupts come anywhere, so their
/// stacks are ever new ones.
const WITH_INTERRUPTED: u64 = 1 << 13;

/// The number of the stack above the driver's function that is about to run, with its return address at
/// `rsp`. `record` gets the stack's record if it is new. `None` where stacks cannot be walked, or the function
/// has no caller.
pub fn above(
    tracer: &Tracer,
    vcpu: &mut Vcpu,
    thread: (u64, u32),
    (rsp, ret): (u64, u64),
    record: &mut Vec<u64>,
) -> Option<u64> {
    let (unwinder, slide) = (tracer.stacks.unwinder.as_ref()?, tracer.slide()?);
    if ret >> 63 == 0 {
        return None;
    }
    let first = Frame::first(ret, rsp.wrapping_add(8), vcpu.reg(RBP), false);
    let all = vcpu.stacks.count() < WITH_INTERRUPTED;
    let (mut words, mut count) = ([0; MAX_STACK], 0);
    unwinder.walk(&mut Walked { tracer, vcpu: &mut *vcpu, thread }, slide, first, MAX_STACK, |frame| {
        if frame.interrupted && !all {
            return false;
        }
        let &Frame { pc: address, interrupted, switched, .. } = frame;
        if let Some(word) = words.get_mut(count) {
            *word = StackFrame { address, interrupted, switched }.encode();
            count += 1;
        }
        count < MAX_STACK
    });
    let words = &words[..count];
    let (number, new) = vcpu.stacks.number(words);
    if new {
        record.push(Head::encode(Kind::Stack, count as u8, number));
        record.extend(words);
    }
    Some(number)
}

/// A vCPU in a callback, whose stack belongs to a task or to an interrupt on its time.
struct Walked<'a> {
    tracer: &'a Tracer,
    vcpu: &'a mut Vcpu,
    thread: (u64, u32),
}

impl Guest for Walked<'_> {
    fn cpu(&mut self) -> &mut Cpu {
        self.vcpu
    }

    fn physical(&mut self, page: u64) -> Option<u64> {
        self.vcpu.translate_stack(self.thread, page)
    }

    fn word(&self, physical: u64) -> Option<u64> {
        self.tracer.ram.word(physical, 8)
    }

    fn module(&self, pc: u64) -> Option<u64> {
        self.tracer.stacks.module_at(pc)
    }
}
