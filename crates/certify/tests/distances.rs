//! Values, sizes and addends are whatever a file says, and sums of them overflowed.

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
