//! Takes a module through the passes.

use crate::engine::code::Code;
use crate::engine::emit::add_faults;
use crate::engine::flow::{Flow, Words};
use crate::engine::layout::{Placed, place};
use crate::engine::object::Object;
use crate::engine::orc::{self, Frames};
use crate::engine::pass::{FunctionView, Pass, Text};
use crate::engine::patch::Patch;
use crate::engine::relocate::{Moves, move_all};
use crate::engine::tables;
use crate::error::{Result, RewriteError, refused};
use crate::verify::verify;
use guardrail_abi::FIELD;
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::module::unpack;
use iced_x86::FlowControl;
use std::collections::BTreeMap;

/// A rewritten module.
#[derive(Debug)]
pub struct Rewritten {
    /// The content of the new `.ko` file.
    pub file: Vec<u8>,
    /// What the rewriting did.
    pub counts: Counts,
    /// Functions whose callers use registers that a call may change: assembly with a convention of its own.
    pub own: Vec<String>,
}

/// What the rewriting did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of the module.
    pub insns: usize,
    /// Instructions with code in front.
    pub patched: usize,
    /// Bytes of code before.
    pub old_bytes: u64,
    /// Bytes of code now.
    pub new_bytes: u64,
}

/// Rewrites a module, compressed or not. `what` names it in errors.
pub fn rewrite(what: &str, file: Vec<u8>, passes: &mut [&mut dyn Pass]) -> Result<Rewritten> {
    let data = unpack(what, file)?;
    let image = ModuleImage::parse(what, data.clone())?;
    if image.info(FIELD).is_some() {
        return Err(RewriteError::Guarded { what: what.to_owned() });
    }
    let mut object = Object::read(what, &data)?;
    object.remove_sections(tables::debug);
    let mut counts = Counts::default();
    let codes = Code::all(&object)?;
    let flow = Flow::of(&object, &codes)?;
    for pass in passes.iter_mut() {
        pass.prepare(&mut object)?;
    }
    let mut all_patches = Vec::new();
    for code in &codes {
        all_patches.push(patches(&object, code, &flow, passes)?);
    }
    let before = object.clone();
    for pass in passes.iter_mut() {
        pass.finish(&mut object)?;
    }
    let mut placed: BTreeMap<usize, Placed> = BTreeMap::new();
    let mut frames = Vec::new();
    for (code, patches) in codes.iter().zip(all_patches) {
        let new = place(&object, code, &patches)?;
        counts.insns += code.insns.len();
        counts.patched += patches.len();
        counts.old_bytes += object.sections[code.section].size();
        counts.new_bytes += new.bytes.len() as u64;
        frames.push((code.section, Frames::read(&object, code.section)?));
        placed.insert(code.section, new);
    }
    let moves: Moves<'_> = codes.iter().map(|code| (code.section, (code, &placed[&code.section]))).collect();
    move_all(&mut object, &moves)?;
    for (section, frames) in &frames {
        orc::add(&mut object, *section, frames, &placed[section].stacks);
        add_faults(&mut object, *section, &placed[section].faults);
    }
    let texts: Vec<Text> = codes.iter().map(|code| text(code, &placed[&code.section], &flow)).collect();
    for pass in passes.iter_mut() {
        pass.placed(&mut object, &texts);
    }
    let names: Vec<_> = passes.iter().map(|pass| pass.name()).collect();
    object.note(FIELD, &names.join(","));
    let file = object.write()?;
    verify(&before, &codes, &placed, &Object::read(what, &file)?)?;
    Ok(Rewritten { file, counts, own: flow.own.into_iter().collect() })
}

/// Which words of frames hold registers of callers, for each call of the new code, patches included.
fn text(code: &Code, placed: &Placed, flow: &Flow) -> Text {
    let words = |number: u32| flow.spills(code.section, number);
    let calls = |number: &u32| {
        let insn = &code.insns[*number as usize].insn;
        let patched = placed.entry[*number as usize] != placed.insn[*number as usize];
        patched || matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    };
    let own = (0..code.insns.len() as u32).filter(calls);
    let own = own.map(|number| (placed.entry[number as usize], words(number)));
    let outs = placed.outs.iter().map(|&(at, number)| (at, words(number)));
    let mut spills: Vec<(u32, Words)> = own.chain(outs).map(|(at, words)| (at as u32, words)).collect();
    spills.sort_by_key(|spill| spill.0);
    spills.dedup_by_key(|spill| spill.1);
    Text { section: code.section, spills }
}

fn patches(
    object: &Object,
    code: &Code,
    flow: &Flow,
    passes: &mut [&mut dyn Pass],
) -> Result<BTreeMap<u32, Vec<Patch>>> {
    let mut patches: BTreeMap<u32, Vec<Patch>> = BTreeMap::new();
    for pass in passes {
        for function in &code.functions {
            for (number, patch) in pass.function(&FunctionView { object, code, function, flow })? {
                if code.insns.get(number as usize).is_none_or(|insn| insn.fixed && !insn.first) {
                    let place = format!("instruction {number} of {}", object.sections[code.section].name);
                    return refused(place, format!("the pass {} may not patch it", pass.name()));
                }
                patches.entry(number).or_default().push(patch);
            }
        }
    }
    Ok(patches)
}
