//! Tells the runtime which words of stack frames hold registers of callers: `struct guardrail_text`.

use crate::border::guard;
use crate::border::redirect::{CALLS, ENTRIES, INIT_ENTRIES};
use crate::engine::flow::Words;
use crate::engine::object::{Content, Object, Reloc, reloc};
use crate::engine::pass::Text;
use guardrail_abi::{self as abi, layout};

/// Sections of thunks of the border. Nothing may write their frames.
const THUNKS: [&str; 3] = [CALLS, ENTRIES, INIT_ENTRIES];

/// Adds the module's code to its description, with another section of thunks.
pub fn describe(object: &mut Object, texts: &[Text], asks: &str) {
    use layout::{module, spill, text as row};
    let Some(section) = object.section(guard::SECTION) else { return };
    let own = object.symbol_of_section(section);
    let thunks: Vec<usize> =
        THUNKS.into_iter().chain([asks]).filter_map(|name| object.section(name)).collect();
    let all = thunks.iter().map(|index| (*index, None));
    let all: Vec<_> = all.chain(texts.iter().map(|text| (text.section, Some(&text.spills)))).collect();
    let mut bytes = object.sections[section].bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut relocs: Vec<Reloc> = Vec::new();
    let mut pointer = |at: usize, symbol: usize, addend: usize| {
        relocs.push(Reloc { offset: at as u64, kind: reloc::ABS64, symbol, addend: addend as i64 });
    };
    let first = bytes.len();
    pointer(module::TEXTS, own, first);
    bytes[module::N_TEXTS..module::N_TEXTS + 8].copy_from_slice(&(all.len() as u64).to_le_bytes());
    bytes.resize(first + row::BYTES * all.len(), 0);
    for (number, (index, spills)) in all.into_iter().enumerate() {
        let at = first + row::BYTES * number;
        let size = object.sections[index].size();
        pointer(at + row::END, object.symbol_of_section(index), size as usize);
        bytes[at + row::LEN..at + row::LEN + 8].copy_from_slice(&size.to_le_bytes());
        let Some(spills) = spills else { continue };
        pointer(at + row::SPILLS, own, bytes.len());
        let count = at + row::N_SPILLS;
        bytes[count..count + 8].copy_from_slice(&(spills.len() as u64).to_le_bytes());
        for (offset, words) in spills {
            let at = bytes.len();
            bytes.resize(at + spill::BYTES, 0);
            bytes[at + spill::AT..at + spill::AT + 4].copy_from_slice(&offset.to_le_bytes());
            bytes[at + spill::WORDS..at + spill::WORDS + 4].copy_from_slice(&number_of(*words).to_le_bytes());
        }
    }
    let description = &mut object.sections[section];
    description.content = Content::Bytes(bytes);
    description.relocs.extend(relocs);
    description.relocs.sort_by_key(|reloc| reloc.offset);
}

/// The words as the runtime has them.
fn number_of(words: Words) -> u32 {
    let bits = words.bits & ((1 << abi::SPILL_WORDS) - 1);
    let flag = |is, flag| if is { flag } else { 0 };
    bits | flag(words.by_rbp, abi::SPILL_BY_RBP) | flag(words.top, abi::SPILL_TOP)
}
