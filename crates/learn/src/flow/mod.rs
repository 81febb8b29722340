//! What one function does, from its code and from what is known of those that it calls.

mod call;
pub mod code;
mod state;
mod step;

use crate::known::members;
use crate::summary::{Deep, Effects, Site, Sites, Summary, Unknown};
use crate::types::{Class, Signature, Types};
use crate::unit::Unit;
use crate::value::{ARGS, Kind, Set, Val};
use code::{Body, Callee};
use iced_x86::{ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use state::State;
use std::rc::Rc;
use std::sync::Arc;

/// The registers of arguments, by number.
const REGISTERS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// How often a block may be looked at, on average.
const VISITS: usize = 40;

/// A function that is called, as far as it is known.
#[derive(Clone, Debug)]
pub struct Called {
    /// What it does.
    pub summary: Arc<Summary>,
    /// Its prototype.
    pub signature: Option<Rc<Signature>>,
}

/// What a function's code stands in.
pub trait Surroundings {
    /// The binary.
    fn unit(&self) -> &Unit;
    /// Its types.
    fn types(&self) -> &Types;
    /// What is known of a callee; `None` where its code is not at hand.
    fn called(&self, callee: &Callee) -> Option<Called>;
    /// Whether a callee is where functions return to.
    fn is_return(&self, callee: &Callee) -> bool;
    /// Whether a callee leaves the registers of arguments as they are.
    fn preserves(&self, callee: &Callee) -> bool;
    /// The member of `pv_ops` that an indirect call reads, as a path.
    fn paravirtual(&self, insn: &Instruction) -> Option<String>;
}

/// The analysis of one function.
pub struct Flow<'a> {
    around: &'a dyn Surroundings,
    info: InstructionInfoFactory,
    /// The number of the function's name, and its first byte.
    function: (u32, u64),
    /// Arguments that are numbers of 64 bits by the prototype.
    wide: Set,
    summary: Summary,
    signature: Option<Rc<Signature>>,
}

/// Finds out what a function does. `name` is the number of its name.
pub fn summarize(
    around: &dyn Surroundings,
    function: usize,
    name: u32,
    signature: Option<Rc<Signature>>,
) -> Summary {
    let Some(body) = code::body(around.unit(), function) else { return Summary::unknown(Unknown::Large) };
    if body.code.is_empty() {
        return Summary::unknown(Unknown::Absent);
    }
    let mut flow = Flow {
        around,
        info: InstructionInfoFactory::new(),
        function: (name, around.unit().functions()[function].start),
        wide: 0,
        summary: Summary::NOTHING,
        signature,
    };
    if body.odd {
        flow.summary.unknown = Some(Unknown::Odd);
    }
    flow.run(&body);
    flow.finish()
}

impl Flow<'_> {
    fn entry(&mut self) -> State {
        let mut state = State::entry();
        state.regs[4] = Val::frame(0);
        let all: Vec<(usize, Class)> = match &self.signature {
            Some(signature) => signature.args.clone(),
            None => (0..REGISTERS.len()).map(|arg| (arg, Class::Other)).collect(),
        };
        for (arg, class) in all {
            let value = match class {
                Class::Narrow => Val::narrow(arg),
                Class::Wide | Class::Other => Val::arg(arg, 0),
                Class::Pointer(ty) => Val::arg(arg, ty),
            };
            if class == Class::Wide {
                self.wide |= 1 << arg;
            }
            match REGISTERS.get(arg) {
                Some(register) => state.regs[*register] = value,
                // The first argument on the stack stands behind the address of return.
                None => state.store(8 + 8 * (arg as i32 - 6), 8, value),
            }
        }
        state
    }

    fn run(&mut self, body: &Body) {
        let mut states: Vec<Option<State>> = vec![None; body.blocks.len()];
        states[0] = Some(self.entry());
        let mut waiting = std::collections::BTreeSet::from([0]);
        let mut budget = body.blocks.len() * VISITS + 1000;
        while let Some(block) = waiting.pop_first() {
            if budget == 0 {
                self.summary.unknown = Some(Unknown::Large);
                return;
            }
            budget -= 1;
            let Some(mut state) = states[block].clone() else { continue };
            let (start, end) = body.blocks[block].range;
            let code = &body.code[start..end];
            for insn in code {
                self.step(&mut state, insn);
            }
            let null = null_test(code, &state);
            for (index, &next) in body.blocks[block].next.iter().enumerate() {
                let falls = body.blocks[block].falls && index + 1 == body.blocks[block].next.len();
                let mut state = state.clone();
                if let Some((arg, where_equal)) = null
                    && where_equal != falls
                {
                    state.is_null(arg);
                }
                let changed = match &mut states[next] {
                    Some(known) => known.join(&state),
                    none => {
                        *none = Some(state);
                        true
                    }
                };
                if changed {
                    waiting.insert(next);
                }
            }
        }
    }

    /// The function returns with this state.
    fn returns(&mut self, value: Val, freed: Set) {
        let before = self.summary.result;
        self.summary.result = Some(before.map_or(value, |known| known.join(value)));
        self.summary.freed = if before.is_none() { freed } else { self.summary.freed & freed };
    }

    fn finish(mut self) -> Summary {
        if let (Some(signature), Some(result)) = (&self.signature, &mut self.summary.result) {
            match signature.result {
                None | Some(Class::Narrow) => *result = Val::TOP,
                Some(Class::Pointer(ty)) if ty != 0 && result.ty == 0 => {
                    if matches!(result.kind, Kind::Top) {
                        result.kind = Kind::Offset(0);
                        result.maybe = true;
                        // The offset of an argument stays unknown.
                        if result.direct != 0 {
                            result.kind = Kind::Top;
                        }
                    }
                    result.ty = if result.kind == Kind::Top { 0 } else { ty };
                }
                _ => {}
            }
        }
        if let Some(result) = &mut self.summary.result {
            result.frame = false;
            if matches!(result.kind, Kind::Frame(_)) {
                *result = Val::TOP;
            }
        }
        self.summary
    }

    fn site(&self, insn: &Instruction) -> Site {
        Site { function: self.function.0, offset: insn.ip().wrapping_sub(self.function.1) as u32 }
    }

    /// The arguments of a set of which a pointer can be made, among them those of other kinds only if nothing else is.
    fn pointers(&self, value: &Val) -> Set {
        let all = value.pointers();
        let real = all & !self.wide;
        if real != 0 || value.deep != 0 && value.direct & !self.wide != 0 { real } else { all }
    }

    /// Notes something of some arguments.
    fn note(&mut self, args: Set, what: impl Fn(&mut Effects, &mut Sites)) {
        for arg in members(args) {
            what(&mut self.summary.args[arg], &mut self.summary.sites[arg]);
        }
    }

    /// Notes what happens further on from some arguments.
    fn note_deep(&mut self, args: Set, deep: Deep, site: Site) {
        self.note(args, |effects, sites| {
            effects.deep.add(deep);
            sites.other.get_or_insert(site);
        });
    }

    /// A value is stored where others find it.
    fn keep(&mut self, value: Val, site: Site) {
        let direct = self.pointers(&value);
        self.note(direct, |effects, sites| {
            effects.keep = true;
            sites.other.get_or_insert(site);
        });
        if matches!(value.kind, Kind::Fresh(_)) {
            self.summary.shared = true;
        }
    }
}

/// The argument that a block's last instruction compares with NULL, and whether the jump is taken where it is NULL.
fn null_test(code: &[Instruction], state: &State) -> Option<(usize, bool)> {
    let (last, before) = code.split_last()?;
    let equal = match last.condition_code() {
        ConditionCode::e => true,
        ConditionCode::ne => false,
        _ => return None,
    };
    if last.flow_control() != FlowControl::ConditionalBranch {
        return None;
    }
    let test = before.last()?;
    let itself = test.mnemonic() == Mnemonic::Test
        && test.op0_kind() == OpKind::Register
        && test.op1_kind() == OpKind::Register
        && test.op0_register() == test.op1_register();
    let zero = test.mnemonic() == Mnemonic::Cmp
        && test.op0_kind() == OpKind::Register
        && test.op1_kind() != OpKind::Register
        && test.op1_kind() != OpKind::Memory
        && test.immediate(1) == 0;
    let register = test.op0_register();
    let wide = register.size() == 8 && register.is_gpr();
    let value = ((itself || zero) && wide).then(|| state.regs[register.number()])?;
    Some((value.exact().filter(|arg| *arg < ARGS)?, equal))
}

/// The number of a register's whole.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}
