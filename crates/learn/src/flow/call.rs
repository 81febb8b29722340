//! What a call does: the callee's effects, in terms of the caller's arguments.

use super::{Called, Flow, REGISTERS, State, code, number};
use crate::known::members;
use crate::summary::{Deep, Effects, Site, Sites};
use crate::types::{Class, Signature};
use crate::value::{ARGS, Fresh, Kind, Set, Size, Val};
use iced_x86::{Instruction, OpKind};

/// The registers that a callee may change besides the result's.
const CLOBBERED: [usize; 8] = [1, 2, 6, 7, 8, 9, 10, 11];

impl Flow<'_> {
    /// A call, or a jump to another function.
    pub(super) fn call(&mut self, state: &mut State, insn: &Instruction, jumps: bool) {
        let Some(callee) = code::callee(self.around.unit(), insn) else { return };
        let site = self.site(insn);
        let actual = self.actual(state, jumps);
        let paravirtual = self.around.paravirtual(insn).filter(|_| callee == code::Callee::Indirect);
        let result = match (&callee, &paravirtual) {
            (_, Some(operation)) => self.paravirtual(operation, &actual, site),
            (code::Callee::Indirect, None) => self.indirect(state, insn, &actual, site),
            _ => match self.around.called(&callee) {
                Some(called) => self.known(state, &called, &actual, site),
                None => self.unknown(state, None, &actual, 0, site),
            },
        };
        // What assembly calls for its own purposes leaves arguments alone.
        if paravirtual.is_none() && !self.around.preserves(&callee) {
            for register in CLOBBERED {
                state.regs[register] = Val::TOP;
            }
        }
        state.regs[0] = result;
    }

    /// A call of an operation that a hypervisor may replace. Only those of locks change memory of arguments.
    fn paravirtual(&mut self, operation: &str, actual: &[Val; ARGS], site: Site) -> Val {
        if operation.starts_with("lock.") {
            let direct = self.pointers(&actual[0]);
            let place = actual[0].place();
            self.note(direct, |effects, sites| {
                match place {
                    Some((_, at)) => effects.write.add(at, at.saturating_add(1)),
                    None => effects.write.unbounded = true,
                }
                sites.write.get_or_insert(site);
            });
            self.note_deep(actual[0].deep, Deep::WRITE, site);
        }
        Val::TOP
    }

    /// The values of arguments. Those on the stack lie above the address of return, which a jump leaves in its place.
    fn actual(&self, state: &State, jumps: bool) -> [Val; ARGS] {
        let mut actual = [Val::TOP; ARGS];
        for (value, register) in actual.iter_mut().zip(REGISTERS) {
            *value = state.regs[register];
        }
        if let Kind::Frame(top) = state.regs[4].kind {
            for (value, at) in actual[6..].iter_mut().zip((top + if jumps { 8 } else { 0 }..).step_by(8)) {
                *value = state.load(at);
            }
        }
        actual
    }

    /// A call of what a register or memory holds.
    fn indirect(&mut self, state: &mut State, insn: &Instruction, actual: &[Val; ARGS], site: Site) -> Val {
        let unit = self.around.unit();
        let target = match code::indirect_register(unit, insn).and_then(number) {
            Some(register) => state.regs[register],
            None if insn.op_count() > 0 && insn.op0_kind() == OpKind::Memory => self.load(state, insn),
            None => Val::TOP,
        };
        let direct = self.pointers(&target);
        self.note(direct, |effects, sites| {
            effects.call = true;
            sites.other.get_or_insert(site);
        });
        self.note_deep(target.deep, Deep::CALL, site);
        let signature = self.around.types().prototype(target.ty);
        self.unknown(state, signature.as_deref(), actual, direct, site)
    }

    /// A call of a function of which nothing is known but its type. `own` has the arguments that are this function:
    /// what it gets is its provider's.
    fn unknown(
        &mut self,
        state: &mut State,
        signature: Option<&Signature>,
        actual: &[Val; ARGS],
        own: Set,
        site: Site,
    ) -> Val {
        let taken = |at: usize| match signature {
            Some(signature) => {
                signature.args.iter().any(|(arg, class)| *arg == at && !matches!(class, Class::Narrow))
            }
            None => at < REGISTERS.len(),
        };
        let mut masks = 0;
        let mut framed = false;
        for (at, value) in actual.iter().enumerate().filter(|(at, _)| taken(*at)) {
            masks |= self.pointers(value) | value.deep;
            if own == 0 {
                let plain = self.is_read_only(signature, at);
                self.escape(value, plain, site);
                for held in self.held(state, value) {
                    self.escape(&held, plain, site);
                    masks |= held.deep | self.pointers(&held);
                }
            }
            framed |= value.frame;
        }
        if framed {
            state.blur_range(i32::MIN, 0, masks);
        }
        match signature.map(|signature| signature.result) {
            Some(None | Some(Class::Narrow)) => Val::TOP,
            Some(Some(Class::Pointer(ty))) => Val::loaded(masks, ty),
            _ => Val::loaded(masks, 0),
        }
    }

    /// Whether a function's prototype has it only read through an argument.
    fn is_read_only(&self, signature: Option<&Signature>, at: usize) -> bool {
        signature.is_some_and(|signature| signature.constant & 1 << at != 0)
    }

    fn escape(&mut self, value: &Val, reads: bool, site: Site) {
        if reads {
            return self.reads(*value, false, site);
        }
        let direct = self.pointers(value);
        self.note(direct, |effects, sites| {
            effects.escape = true;
            sites.other.get_or_insert(site);
        });
        self.note_deep(value.deep, Deep::ESCAPE, site);
        if matches!(value.kind, Kind::Fresh(_)) {
            self.summary.shared = true;
        }
    }

    /// What lies in the frame where a value points to it.
    fn held(&self, state: &State, value: &Val) -> Vec<Val> {
        match value.kind {
            Kind::Frame(offset) => state.values_from(offset).collect(),
            _ if value.frame => state.values_from(i32::MIN).collect(),
            _ => Vec::new(),
        }
    }

    /// A call of a function of which a summary is known.
    fn known(&mut self, state: &mut State, called: &Called, actual: &[Val; ARGS], site: Site) -> Val {
        let summary = &*called.summary;
        if summary.unknown.is_some() {
            return self.unknown(state, called.signature.as_deref(), actual, 0, site);
        }
        let taken = |at: usize| match &called.signature {
            Some(signature) => signature.args.iter().any(|(arg, _)| *arg == at),
            None => true,
        };
        let mut masks = 0;
        for (_, value) in actual.iter().enumerate().filter(|(at, _)| taken(*at)) {
            masks |= self.pointers(value) | value.deep;
        }
        for (at, value) in actual.iter().enumerate().filter(|(at, _)| taken(*at)) {
            let effects = &summary.args[at];
            if *effects == Effects::default() {
                continue;
            }
            let sites = &summary.sites[at];
            self.apply(effects, sites, value, actual, site);
            let held = if effects.deep.0 != 0 || effects.escape || effects.keep {
                self.held(state, value)
            } else {
                Vec::new()
            };
            for held in held {
                self.apply_behind(effects, sites, &held, site);
            }
            if value.frame
                && (!effects.write.is_empty() || effects.escape || effects.deep.any(Deep(!Deep::READ.0)))
            {
                let (low, high) = match (value.kind, effects.write) {
                    (
                        Kind::Frame(at),
                        crate::summary::Extent { range: Some((low, high)), counted: None, unbounded: false },
                    ) if !effects.escape => (at.saturating_add(low), at.saturating_add(high)),
                    (Kind::Frame(at), _) => (at, 0),
                    _ => (i32::MIN, 0),
                };
                state.blur_range(low, high, masks);
            }
        }
        for arg in members(summary.freed) {
            if let Some(own) = actual[arg].exact() {
                state.freed |= 1 << own;
            }
        }
        self.result(state, called, actual)
    }

    /// Applies what a callee does with one argument to the value that it gets.
    fn apply(&mut self, effects: &Effects, sites: &Sites, value: &Val, actual: &[Val; ARGS], site: Site) {
        let direct = self.pointers(value);
        let place = value.place();
        if !effects.write.is_empty() {
            let write = sites.write.unwrap_or(site);
            let extent = effects.write;
            self.note(direct, |own, sites| {
                let Some((_, at)) = place else {
                    own.write.unbounded = true;
                    sites.write.get_or_insert(write);
                    return;
                };
                if let Some((low, high)) = extent.range {
                    own.write.add(at.saturating_add(low), at.saturating_add(high));
                }
                if let Some((count, times)) = extent.counted {
                    let length = actual[usize::from(count) % ARGS];
                    match length.kind {
                        Kind::Const(number) => match i32::try_from(number.saturating_mul(i64::from(times))) {
                            Ok(0) => {}
                            Ok(bytes) if bytes > 0 => own.write.add(at, at.saturating_add(bytes)),
                            _ => own.write.unbounded = true,
                        },
                        _ => match length.exact().filter(|_| at == 0) {
                            Some(arg) => own.write.add_counted(arg as u8, times),
                            None => own.write.unbounded = true,
                        },
                    }
                }
                own.write.unbounded |= extent.unbounded;
                sites.write.get_or_insert(write);
            });
            self.note_deep(value.deep, Deep::WRITE, write);
        }
        let other = sites.other.unwrap_or(site);
        if effects.read
            || effects.call
            || effects.keep
            || effects.escape
            || effects.per_cpu
            || effects.deep.0 != 0
        {
            self.note(direct, |own, sites| {
                own.read |= effects.read;
                own.call |= effects.call;
                own.keep |= effects.keep;
                own.escape |= effects.escape;
                own.per_cpu |= effects.per_cpu;
                own.deep.add(effects.deep);
                sites.other.get_or_insert(other);
            });
        }
        let mut deep = effects.deep;
        for (happens, what) in [
            (effects.read, Deep::READ),
            (effects.call, Deep::CALL),
            (effects.escape, Deep::ESCAPE),
            (effects.free != 0, Deep::FREE),
        ] {
            if happens {
                deep.add(what);
            }
        }
        self.note_deep(if deep.0 == 0 { 0 } else { value.deep }, deep, other);
        if effects.free != 0 {
            let free = sites.free.unwrap_or(site);
            let inner = effects.inner_free || value.place().is_none_or(|(_, at)| at != 0);
            self.note(direct, |own, sites| {
                own.free |= effects.free;
                own.inner_free |= inner;
                sites.free.get_or_insert(free);
            });
        }
        if matches!(value.kind, Kind::Fresh(_)) && (effects.keep || effects.escape) {
            self.summary.shared = true;
        }
    }

    /// Applies what a callee does through an argument that points to the caller's frame to a value that lies there.
    fn apply_behind(&mut self, effects: &Effects, sites: &Sites, held: &Val, site: Site) {
        let other = sites.other.unwrap_or(site);
        let deep = effects.deep;
        let direct = self.pointers(held);
        self.note(direct, |own, sites| {
            own.read |= deep.any(Deep::READ);
            own.write.unbounded |= deep.any(Deep::WRITE);
            own.call |= deep.any(Deep::CALL);
            own.escape |= deep.any(Deep::ESCAPE) || effects.escape;
            own.keep |= effects.keep;
            own.deep.add(deep);
            if deep.any(Deep::FREE) {
                own.inner_free = true;
                own.free |= crate::known::LATER;
                sites.free.get_or_insert(other);
            }
            if deep.any(Deep::WRITE) {
                sites.write.get_or_insert(other);
            }
            sites.other.get_or_insert(other);
        });
        self.note_deep(held.deep, deep, other);
        if matches!(held.kind, Kind::Fresh(_)) {
            self.summary.shared = true;
        }
    }

    /// What a call returns, in terms of the caller's arguments.
    fn result(&self, state: &State, called: &Called, actual: &[Val; ARGS]) -> Val {
        let own_type = match called.signature.as_ref().map(|signature| signature.result) {
            Some(None | Some(Class::Narrow)) => return Val::TOP,
            Some(Some(Class::Pointer(ty))) => ty,
            _ => 0,
        };
        let Some(result) = called.summary.result else { return Val::TOP };
        if let Some((arg, offset)) = result.place().filter(|_| !result.maybe && result.deep == 0) {
            return actual[arg].plus(i64::from(offset));
        }
        if let (Kind::Narrow, Some(arg)) = (result.kind, result.exact()) {
            return actual[arg].low();
        }
        let mut value = Val { direct: 0, deep: 0, ..result };
        for arg in members(result.direct) {
            value.direct |= self.pointers(&actual[arg]);
            value.deep |= actual[arg].deep;
            value.frame |= actual[arg].frame;
        }
        for arg in members(result.deep) {
            value.deep |= actual[arg].deep | self.pointers(&actual[arg]);
            for held in self.held(state, &actual[arg]) {
                value.deep |= held.deep | self.pointers(&held);
            }
        }
        value.kind = match result.kind {
            Kind::Fresh(Fresh { class, size: Size::Arg(arg, times) }) => {
                let size = match actual[usize::from(arg) % ARGS] {
                    Val { kind: Kind::Const(number), .. } => u32::try_from(number)
                        .ok()
                        .and_then(|number| number.checked_mul(times))
                        .map_or(Size::Unknown, Size::Const),
                    other => other.exact().map_or(Size::Unknown, |arg| Size::Arg(arg as u8, times)),
                };
                Kind::Fresh(Fresh { class, size })
            }
            kind @ (Kind::Fresh(_) | Kind::Const(_)) => kind,
            Kind::Offset(_) if value.direct == 0 && (own_type | result.ty) != 0 => Kind::Offset(0),
            _ if value.direct == 0 && own_type != 0 => Kind::Offset(0),
            _ => Kind::Top,
        };
        value.ty = match value.kind {
            Kind::Offset(_) if own_type != 0 => own_type,
            Kind::Offset(_) => result.ty,
            _ => 0,
        };
        value
    }
}
