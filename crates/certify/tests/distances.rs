//! Values, sizes, addends and names are whatever a file says. Sums overflowed, and each symbol copied its name.

use guardrail_certify::{CertifyError, certify};
use guardrail_rewrite::Object;
use guardrail_rewrite::object::{Content, SectionIndex};

mod made;

#[test]
fn distances_beyond_all_addresses_are_refused() {
    let file = made::guard(&made::module()).unwrap();
    let whole = Object::read("whole", &file).unwrap();
    let refused = |change: &dyn Fn(&mut Object)| {
        let mut object = whole.clone();
        change(&mut object);
        let refused = certify("far", &object.write().unwrap()).map(|certificate| certificate.faults);
        assert!(matches!(refused, Err(CertifyError::File { .. })), "{refused:#?}");
    };
    for far in [u64::MAX, i64::MAX as u64, 1 << 60] {
        let inside = |index| matches!(index, SectionIndex::In(_));
        refused(&|object| {
            object.symbols.iter_mut().filter(|symbol| symbol.function()).for_each(|symbol| symbol.size = far);
        });
        refused(&|object| {
            let named = object.symbols.iter_mut().filter(|symbol| inside(symbol.index));
            named.for_each(|symbol| symbol.value = far);
        });
        refused(&|object| object.sections.last_mut().unwrap().content = Content::Zeros(far));
    }
    for far in [i64::MIN, i64::MAX, 1 << 60] {
        refused(&|object| {
            object.sections.iter_mut().for_each(|section| {
                section.relocs.iter_mut().for_each(|reloc| reloc.addend = far);
            })
        });
    }
}

#[test]
fn long_names_are_refused() {
    let whole = Object::read("whole", &made::guard(&made::module()).unwrap()).unwrap();
    let result = |length: usize, of_section: bool| {
        let mut object = whole.clone();
        let name = if of_section { &mut object.sections[3].name } else { &mut object.symbols[3].name };
        *name = "x".repeat(length);
        certify("long", &object.write().unwrap())
    };
    // The section's relocations have its name behind ".rela".
    for (of_section, most) in [(true, 1019), (false, 1024)] {
        assert!(result(most, of_section).is_ok());
        let refused = result(most + 1, of_section).map(|certificate| certificate.faults);
        assert!(matches!(refused, Err(CertifyError::File { .. })), "{refused:#?}");
    }
}
