//! The size of a thunk's stack is whatever its file says.

use guardrail_certify::certify;
use guardrail_rewrite::Object;
use guardrail_rewrite::object::Content;

mod made;

#[test]
fn a_thunk_with_a_vast_stack_is_refused_at_once() {
    let file = made::guard(&made::module()).unwrap();
    assert_eq!(certify("whole", &file).unwrap().faults, [""; 0]);
    let mut object = Object::read("whole", &file).unwrap();
    let calls = object.section(".text.guardrail.calls").unwrap();
    let Content::Bytes(code) = &mut object.sections[calls].content else { panic!("code is bytes") };
    // sub rsp, 0x40 becomes sub rsp, 0x7f000040.
    let room = [0x48, 0x81, 0xec, 0x40, 0, 0, 0];
    let at = code.windows(room.len()).position(|bytes| bytes == room).unwrap();
    code[at + room.len() - 1] = 0x7f;
    let faults = certify("vast", &object.write().unwrap()).unwrap().faults;
    let other = |fault: &&String| fault.contains("a thunk passes other words of the stack");
    assert_eq!(faults.iter().filter(other).count(), 1, "{faults:#?}");
}
