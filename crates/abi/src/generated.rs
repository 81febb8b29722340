//! Generated from `runtime/include/guardrail_abi.h`; do not edit. `GUARDRAIL_ABI_WRITE=1 cargo test -p guardrail-abi` writes it anew.
/// `GUARDRAIL_ABI`.
pub const ABI: u32 = 13;
/// `GUARDRAIL_MAGIC`: "GDRL".
pub const MAGIC: u32 = 0x4c52_4447;
/// `GUARDRAIL_SLOT_SHIFT`.
pub const SLOT_SHIFT: u32 = 3;
/// `GUARDRAIL_SLOT`: bytes.
pub const SLOT: u32 = 8;
/// `GUARDRAIL_DOMAINS`.
pub const DOMAINS: u32 = 15;
/// `GUARDRAIL_MASKS`.
pub const MASKS: u32 = 7;
/// `GUARDRAIL_SINGLE_MASKS`.
pub const SINGLE_MASKS: u32 = 3;
/// `GUARDRAIL_CONFLICT`.
pub const CONFLICT: u32 = 255;
/// `GUARDRAIL_FLAGS`.
pub const FLAGS: u32 = 0;
/// `GUARDRAIL_ANY_STATE`.
pub const ANY_STATE: u32 = 0xffff_ffff;
/// `GUARDRAIL_MAX_TERMS`.
pub const MAX_TERMS: u32 = 16;
/// `GUARDRAIL_MAX_DEPTH`.
pub const MAX_DEPTH: u32 = 4;
/// `GUARDRAIL_WORD_RESULT`.
pub const WORD_RESULT: u32 = 6;
/// `GUARDRAIL_WORD_STACK`.
pub const WORD_STACK: u32 = 9;
/// `GUARDRAIL_PROTO_COUNT`.
pub const PROTO_COUNT: u32 = 15;
/// `GUARDRAIL_PROTO_VARIADIC`.
pub const PROTO_VARIADIC: u32 = 64;
/// `GUARDRAIL_PROTO_KNOWN`.
pub const PROTO_KNOWN: u32 = 128;
/// `GUARDRAIL_PROTO_SHIFT`: of the first kind.
pub const PROTO_SHIFT: u32 = 8;
/// `GUARDRAIL_PROTO_MOST`: kinds; a function of more parameters has no known prototype.
pub const PROTO_MOST: u32 = 12;
/// `GUARDRAIL_PROTO_NUMBER`.
pub const PROTO_NUMBER: u32 = 0;
/// `GUARDRAIL_PROTO_POINTER`.
pub const PROTO_POINTER: u32 = 1;
/// `GUARDRAIL_PROTO_OTHER`.
pub const PROTO_OTHER: u32 = 2;
/// `GUARDRAIL_SPILL_WORDS`.
pub const SPILL_WORDS: u32 = 30;
/// `GUARDRAIL_SPILL_BY_RBP`.
pub const SPILL_BY_RBP: u32 = 0x8000_0000;
/// `GUARDRAIL_SPILL_TOP`.
pub const SPILL_TOP: u32 = 0x4000_0000;
/// `GUARDRAIL_SPILL_ALL`: all of the frame, whatever its size; no row has it.
pub const SPILL_ALL: u32 = 0xffff_ffff;
/// `GUARDRAIL_MAX_KINDS`.
pub const MAX_KINDS: u32 = 30;
/// `GUARDRAIL_READ`.
pub const READ: u8 = 0;
/// `GUARDRAIL_WRITE`: write the whole slot.
pub const WRITE: u8 = 1;
/// `GUARDRAIL_WRITE_LOW`: write its first four bytes.
pub const WRITE_LOW: u8 = 2;
/// `GUARDRAIL_WRITE_HIGH`: write its last four bytes.
pub const WRITE_HIGH: u8 = 3;
/// `GUARDRAIL_CALL`: call by pointer the function that begins here.
pub const CALL: u8 = 4;
/// `GUARDRAIL_OWNER`: a large buffer begins or ends here of which nothing was granted yet.
pub const OWNER: u8 = 5;
/// `GUARDRAIL_OBJECT`: a kernel object begins here; the slot is not writable.
pub const OBJECT: u8 = 6;
/// `GUARDRAIL_OBJECT_WRITE`: a kernel object begins here; the slot is writable.
pub const OBJECT_WRITE: u8 = 7;
/// `GUARDRAIL_MASK`: the first of the masks: write a set of bytes that the runtime keeps for the domain.
pub const MASK: u8 = 8;
/// `GUARDRAIL_SKB`: a packet (struct sk_buff) begins here: an object without a record; the slot is not writable.
pub const SKB: u8 = 15;
/// `GUARDRAIL_ACTION_GRANT`.
pub const ACTION_GRANT: u8 = 1;
/// `GUARDRAIL_ACTION_REVOKE`.
pub const ACTION_REVOKE: u8 = 2;
/// `GUARDRAIL_ACTION_REQUIRE_WRITE`.
pub const ACTION_REQUIRE_WRITE: u8 = 3;
/// `GUARDRAIL_ACTION_OWN`.
pub const ACTION_OWN: u8 = 4;
/// `GUARDRAIL_ACTION_DISOWN`.
pub const ACTION_DISOWN: u8 = 5;
/// `GUARDRAIL_ACTION_GRANT_FIELDS`.
pub const ACTION_GRANT_FIELDS: u8 = 6;
/// `GUARDRAIL_ACTION_REVOKE_FIELDS`.
pub const ACTION_REVOKE_FIELDS: u8 = 7;
/// `GUARDRAIL_ACTION_CREATE_OBJECT`.
pub const ACTION_CREATE_OBJECT: u8 = 8;
/// `GUARDRAIL_ACTION_REQUIRE_OBJECT`.
pub const ACTION_REQUIRE_OBJECT: u8 = 9;
/// `GUARDRAIL_ACTION_MOVE_OBJECT`.
pub const ACTION_MOVE_OBJECT: u8 = 10;
/// `GUARDRAIL_ACTION_FORGET_OBJECT`.
pub const ACTION_FORGET_OBJECT: u8 = 11;
/// `GUARDRAIL_ACTION_REQUIRE_CALL`.
pub const ACTION_REQUIRE_CALL: u8 = 12;
/// `GUARDRAIL_ACTION_EXIT`.
pub const ACTION_EXIT: u8 = 13;
/// `GUARDRAIL_ACTION_CUSTOM`: performed by a guardrail_custom_NAME().
pub const ACTION_CUSTOM: u8 = 14;
/// `GUARDRAIL_ACTION_DESTROY_OBJECT`.
pub const ACTION_DESTROY_OBJECT: u8 = 15;
/// `GUARDRAIL_ACTION_REGISTERS`.
pub const ACTION_REGISTERS: u8 = 16;
/// `GUARDRAIL_ACTION_UNREGISTERS`.
pub const ACTION_UNREGISTERS: u8 = 17;
/// `GUARDRAIL_ACTION_REQUIRE_CALLS`.
pub const ACTION_REQUIRE_CALLS: u8 = 18;
/// `GUARDRAIL_ACTION_DEFER`.
pub const ACTION_DEFER: u8 = 19;
/// `GUARDRAIL_ACTION_REVERSE`.
pub const ACTION_REVERSE: u8 = 20;
/// `GUARDRAIL_ACTION_TOUCH`.
pub const ACTION_TOUCH: u8 = 21;
/// `GUARDRAIL_ACTION_IRREVOCABLE`.
pub const ACTION_IRREVOCABLE: u8 = 22;
/// `GUARDRAIL_ACTION_SAVE`.
pub const ACTION_SAVE: u8 = 23;
/// `GUARDRAIL_ALWAYS`.
pub const ALWAYS: u8 = 0;
/// `GUARDRAIL_RESULT_VALID`: if the result is a pointer, neither NULL nor an error.
pub const RESULT_VALID: u8 = 1;
/// `GUARDRAIL_RESULT_ZERO`: if the result, an int, is 0.
pub const RESULT_ZERO: u8 = 2;
/// `GUARDRAIL_RESULT_NOT_NEGATIVE`: if the result, an int, is 0 or more.
pub const RESULT_NOT_NEGATIVE: u8 = 3;
/// `GUARDRAIL_RESULT_TRUE`: if the result, a bool, is true.
pub const RESULT_TRUE: u8 = 4;
/// `GUARDRAIL_NONZERO`: if the call's word when_word is not 0.
pub const NONZERO: u8 = 5;
/// `GUARDRAIL_OF_ENTRY`: added: before a function of the module, and not if the module calls it itself.
pub const OF_ENTRY: u8 = 128;
/// `GUARDRAIL_VALUE_CONST`.
pub const VALUE_CONST: u8 = 0;
/// `GUARDRAIL_VALUE_WORD`: a word of the call.
pub const VALUE_WORD: u8 = 1;
/// `GUARDRAIL_VALUE_TERMS`.
pub const VALUE_TERMS: u8 = 2;
/// `GUARDRAIL_VALUE_HALF`: the lower four bytes of a word, as an unsigned int is passed.
pub const VALUE_HALF: u8 = 3;
/// `GUARDRAIL_TERM_CONST`: push the operand.
pub const TERM_CONST: u8 = 0;
/// `GUARDRAIL_TERM_WORD`: push the call's word n.
pub const TERM_WORD: u8 = 1;
/// `GUARDRAIL_TERM_LOAD`: replace an address by the n bytes at it plus the operand, zero-extended.
pub const TERM_LOAD: u8 = 2;
/// `GUARDRAIL_TERM_LOW`: replace a value by its lowest n bytes.
pub const TERM_LOW: u8 = 3;
/// `GUARDRAIL_TERM_ADD`: replace two values by their sum.
pub const TERM_ADD: u8 = 4;
/// `GUARDRAIL_TERM_MUL`: replace two values by their product.
pub const TERM_MUL: u8 = 5;
/// `GUARDRAIL_TERM_SHL`: replace two values by the first shifted left by the second.
pub const TERM_SHL: u8 = 6;
/// `GUARDRAIL_KIND_SLAB`.
pub const KIND_SLAB: u32 = 1;
/// `GUARDRAIL_KIND_VMALLOC`.
pub const KIND_VMALLOC: u32 = 2;
/// `GUARDRAIL_KIND_PAGE`.
pub const KIND_PAGE: u32 = 4;
/// `GUARDRAIL_KIND_PERCPU`.
pub const KIND_PERCPU: u32 = 8;
/// `GUARDRAIL_KIND_DMA`.
pub const KIND_DMA: u32 = 16;
/// `GUARDRAIL_KIND_IO`.
pub const KIND_IO: u32 = 32;
/// `GUARDRAIL_KIND_MANAGED`.
pub const KIND_MANAGED: u32 = 64;
/// `GUARDRAIL_KIND_FRAG`.
pub const KIND_FRAG: u32 = 128;
/// `GUARDRAIL_TYPE_NETDEV`.
pub const TYPE_NETDEV: u32 = 256;
/// `GUARDRAIL_TYPE_NAPI`.
pub const TYPE_NAPI: u32 = 512;
/// `GUARDRAIL_TYPE_TIMER`.
pub const TYPE_TIMER: u32 = 1024;
/// `GUARDRAIL_TYPE_WORK`.
pub const TYPE_WORK: u32 = 2048;
/// `GUARDRAIL_TYPE_SKB`.
pub const TYPE_SKB: u32 = 4096;
/// `GUARDRAIL_TYPE_SCSI_CMND`.
pub const TYPE_SCSI_CMND: u32 = 8192;
/// `GUARDRAIL_KIND_HOSTDATA`.
pub const KIND_HOSTDATA: u32 = 16384;
/// `GUARDRAIL_TYPE_MISCDEVICE`.
pub const TYPE_MISCDEVICE: u32 = 32768;
/// `GUARDRAIL_TYPE_RCU_HEAD`.
pub const TYPE_RCU_HEAD: u32 = 0x0001_0000;
/// `GUARDRAIL_TYPE_POOL`.
pub const TYPE_POOL: u32 = 0x0002_0000;
/// `GUARDRAIL_TYPE_URB`.
pub const TYPE_URB: u32 = 0x0004_0000;
/// `GUARDRAIL_KIND_POOLED`.
pub const KIND_POOLED: u32 = 0x0008_0000;
/// `GUARDRAIL_EVENT_LOAD`.
pub const EVENT_LOAD: u8 = 1;
/// `GUARDRAIL_EVENT_STORE`.
pub const EVENT_STORE: u8 = 2;
/// `GUARDRAIL_EVENT_CALL`: the address is the function of a call by pointer, else 0.
pub const EVENT_CALL: u8 = 3;
/// `GUARDRAIL_EVENT_ENTRY`.
pub const EVENT_ENTRY: u8 = 4;
/// `GUARDRAIL_EVENT_EXIT`.
pub const EVENT_EXIT: u8 = 5;
/// `GUARDRAIL_EVENTS`: one more than the last.
pub const EVENTS: u8 = 6;
/// `GUARDRAIL_EVENT_PERCPU`: added to load and store: the address is an offset, as per-CPU pointers have it.
pub const EVENT_PERCPU: u8 = 16;
/// `GUARDRAIL_ENTRY_CALLERS_STACK`: the function may write its callers' stack.
pub const ENTRY_CALLERS_STACK: u8 = 1;
/// `GUARDRAIL_ENTRY_EXIT`: the module's exit function, which does all its work unless teardown does it.
pub const ENTRY_EXIT: u8 = 2;
/// `GUARDRAIL_ENTRY_SELECTED`: a transaction from the start on.
pub const ENTRY_SELECTED: u8 = 4;
/// `GUARDRAIL_ENTRY_BINDS`: it binds or unbinds a device, which is no transaction.
pub const ENTRY_BINDS: u8 = 8;
/// `GUARDRAIL_ENTRY_POWER`: it saves or restores a device, which transactions rely on.
pub const ENTRY_POWER: u8 = 16;
/// `GUARDRAIL_ENTRY_POLL`: a poll of NAPI: it is called again where it returns its second argument.
pub const ENTRY_POLL: u8 = 32;
/// `GUARDRAIL_STACK_MASK`.
pub const STACK_MASK: u32 = 12288;

/// Kinds of allocations and types of objects, by the names that annotations give them.
pub const KINDS: [(&str, u32); 20] = [
    ("slab", KIND_SLAB),
    ("vmalloc", KIND_VMALLOC),
    ("page", KIND_PAGE),
    ("percpu", KIND_PERCPU),
    ("dma", KIND_DMA),
    ("io", KIND_IO),
    ("managed", KIND_MANAGED),
    ("frag", KIND_FRAG),
    ("netdev", TYPE_NETDEV),
    ("napi", TYPE_NAPI),
    ("timer", TYPE_TIMER),
    ("work", TYPE_WORK),
    ("skb", TYPE_SKB),
    ("scsi_cmnd", TYPE_SCSI_CMND),
    ("hostdata", KIND_HOSTDATA),
    ("miscdevice", TYPE_MISCDEVICE),
    ("rcu_head", TYPE_RCU_HEAD),
    ("pool", TYPE_POOL),
    ("urb", TYPE_URB),
    ("pooled", KIND_POOLED),
];

/// Sizes of structs, and the offsets of their members, in bytes.
pub mod layout {
    /// `struct guardrail_range`.
    pub mod range {
        /// Its size.
        pub const BYTES: usize = 16;
        /// Offset of `start`.
        pub const START: usize = 0;
        /// Offset of `len`.
        pub const LEN: usize = 8;
    }
    /// `struct guardrail_import`.
    pub mod import {
        /// Its size.
        pub const BYTES: usize = 24;
        /// Offset of `function`.
        pub const FUNCTION: usize = 0;
        /// Offset of `call`.
        pub const CALL: usize = 8;
        /// Offset of `proto`.
        pub const PROTO: usize = 16;
        /// Offset of `reserved`.
        pub const RESERVED: usize = 20;
    }
    /// `struct guardrail_spill`.
    pub mod spill {
        /// Its size.
        pub const BYTES: usize = 8;
        /// Offset of `at`.
        pub const AT: usize = 0;
        /// Offset of `words`.
        pub const WORDS: usize = 4;
    }
    /// `struct guardrail_own_function`.
    pub mod own_function {
        /// Its size.
        pub const BYTES: usize = 16;
        /// Offset of `function`.
        pub const FUNCTION: usize = 0;
        /// Offset of `type`.
        pub const TYPE: usize = 8;
        /// Offset of `reserved`.
        pub const RESERVED: usize = 12;
    }
    /// `struct guardrail_text`.
    pub mod text {
        /// Its size.
        pub const BYTES: usize = 32;
        /// Offset of `end`.
        pub const END: usize = 0;
        /// Offset of `len`.
        pub const LEN: usize = 8;
        /// Offset of `spills`.
        pub const SPILLS: usize = 16;
        /// Offset of `n_spills`.
        pub const N_SPILLS: usize = 24;
    }
    /// `struct guardrail_module`.
    pub mod module {
        /// Its size.
        pub const BYTES: usize = 184;
        /// Offset of `magic`.
        pub const MAGIC: usize = 0;
        /// Offset of `abi`.
        pub const ABI: usize = 4;
        /// Offset of `domain`.
        pub const DOMAIN: usize = 8;
        /// Offset of `flags`.
        pub const FLAGS: usize = 12;
        /// Offset of `name`.
        pub const NAME: usize = 16;
        /// Offset of `init`.
        pub const INIT: usize = 24;
        /// Offset of `exit`.
        pub const EXIT: usize = 32;
        /// Offset of `writable`.
        pub const WRITABLE: usize = 40;
        /// Offset of `n_writable`.
        pub const N_WRITABLE: usize = 48;
        /// Offset of `init_only`.
        pub const INIT_ONLY: usize = 56;
        /// Offset of `n_init_only`.
        pub const N_INIT_ONLY: usize = 64;
        /// Offset of `targets`.
        pub const TARGETS: usize = 72;
        /// Offset of `n_targets`.
        pub const N_TARGETS: usize = 80;
        /// Offset of `imports`.
        pub const IMPORTS: usize = 88;
        /// Offset of `n_imports`.
        pub const N_IMPORTS: usize = 96;
        /// Offset of `ruled`.
        pub const RULED: usize = 104;
        /// Offset of `imported`.
        pub const IMPORTED: usize = 108;
        /// Offset of `threshold`.
        pub const THRESHOLD: usize = 112;
        /// Offset of `reserved`.
        pub const RESERVED: usize = 116;
        /// Offset of `calls`.
        pub const CALLS: usize = 120;
        /// Offset of `n_calls`.
        pub const N_CALLS: usize = 128;
        /// Offset of `entries`.
        pub const ENTRIES: usize = 136;
        /// Offset of `n_entries`.
        pub const N_ENTRIES: usize = 144;
        /// Offset of `texts`.
        pub const TEXTS: usize = 152;
        /// Offset of `n_texts`.
        pub const N_TEXTS: usize = 160;
        /// Offset of `transacts`.
        pub const TRANSACTS: usize = 168;
        /// Offset of `n_transacts`.
        pub const N_TRANSACTS: usize = 176;
    }
    /// `struct guardrail_field`.
    pub mod field {
        /// Its size.
        pub const BYTES: usize = 8;
        /// Offset of `offset`.
        pub const OFFSET: usize = 0;
        /// Offset of `size`.
        pub const SIZE: usize = 4;
    }
    /// `struct guardrail_held`.
    pub mod held {
        /// Its size.
        pub const BYTES: usize = 32;
        /// Offset of `start`.
        pub const START: usize = 0;
        /// Offset of `len`.
        pub const LEN: usize = 8;
        /// Offset of `domain`.
        pub const DOMAIN: usize = 16;
        /// Offset of `right`.
        pub const RIGHT: usize = 20;
        /// Offset of `type`.
        pub const TYPE: usize = 24;
        /// Offset of `state`.
        pub const STATE: usize = 28;
    }
    /// `struct guardrail_call`.
    pub mod call {
        /// Its size.
        pub const BYTES: usize = 72;
        /// Offset of `args`.
        pub const ARGS: usize = 0;
        /// Offset of `result`.
        pub const RESULT: usize = 48;
        /// Offset of `second`.
        pub const SECOND: usize = 56;
        /// Offset of `caller`.
        pub const CALLER: usize = 64;
        /// Offset of `stack`.
        pub const STACK: usize = 72;
    }
    /// `struct guardrail_term`.
    pub mod term {
        /// Its size.
        pub const BYTES: usize = 16;
        /// Offset of `op`.
        pub const OP: usize = 0;
        /// Offset of `n`.
        pub const N: usize = 1;
        /// Offset of `reserved`.
        pub const RESERVED: usize = 2;
        /// Offset of `operand`.
        pub const OPERAND: usize = 8;
    }
    /// `struct guardrail_value`.
    pub mod value {
        /// Its size.
        pub const BYTES: usize = 16;
        /// Offset of `kind`.
        pub const KIND: usize = 0;
        /// Offset of `word`.
        pub const WORD: usize = 1;
        /// Offset of `n_terms`.
        pub const N_TERMS: usize = 2;
        /// Offset of `reserved`.
        pub const RESERVED: usize = 4;
        /// Offset of `constant`.
        pub const CONSTANT: usize = 8;
        /// Offset of `terms`.
        pub const TERMS: usize = 8;
    }
    /// `struct guardrail_action`.
    pub mod action {
        /// Its size.
        pub const BYTES: usize = 96;
        /// Offset of `kind`.
        pub const KIND: usize = 0;
        /// Offset of `when`.
        pub const WHEN: usize = 1;
        /// Offset of `when_word`.
        pub const WHEN_WORD: usize = 2;
        /// Offset of `domain`.
        pub const DOMAIN: usize = 3;
        /// Offset of `type`.
        pub const TYPE: usize = 4;
        /// Offset of `from`.
        pub const FROM: usize = 8;
        /// Offset of `to`.
        pub const TO: usize = 12;
        /// Offset of `pointer`.
        pub const POINTER: usize = 16;
        /// Offset of `size`.
        pub const SIZE: usize = 32;
        /// Offset of `fields`.
        pub const FIELDS: usize = 48;
        /// Offset of `n_fields`.
        pub const N_FIELDS: usize = 56;
        /// Offset of `n_more`.
        pub const N_MORE: usize = 60;
        /// Offset of `function`.
        pub const FUNCTION: usize = 64;
        /// Offset of `more`.
        pub const MORE: usize = 72;
        /// Offset of `inverse`.
        pub const INVERSE: usize = 80;
        /// Offset of `target`.
        pub const TARGET: usize = 88;
    }
    /// `struct guardrail_entry`.
    pub mod entry {
        /// Its size.
        pub const BYTES: usize = 32;
        /// Offset of `domain`.
        pub const DOMAIN: usize = 0;
        /// Offset of `flags`.
        pub const FLAGS: usize = 4;
        /// Offset of `dead`.
        pub const DEAD: usize = 8;
        /// Offset of `function`.
        pub const FUNCTION: usize = 16;
        /// Offset of `pointers`.
        pub const POINTERS: usize = 24;
        /// Offset of `kept`.
        pub const KEPT: usize = 28;
    }
    /// `struct guardrail_saved`.
    pub mod saved {
        /// Its size.
        pub const BYTES: usize = 96;
        /// Offset of `rbx`.
        pub const RBX: usize = 0;
        /// Offset of `rbp`.
        pub const RBP: usize = 8;
        /// Offset of `r12`.
        pub const R12: usize = 16;
        /// Offset of `r13`.
        pub const R13: usize = 24;
        /// Offset of `r14`.
        pub const R14: usize = 32;
        /// Offset of `r15`.
        pub const R15: usize = 40;
        /// Offset of `sp`.
        pub const SP: usize = 48;
        /// Offset of `ip`.
        pub const IP: usize = 56;
        /// Offset of `flags`.
        pub const FLAGS: usize = 64;
        /// Offset of `unwound`.
        pub const UNWOUND: usize = 72;
        /// Offset of `preempt_count`.
        pub const PREEMPT_COUNT: usize = 80;
        /// Offset of `rcu_nesting`.
        pub const RCU_NESTING: usize = 84;
        /// Offset of `pagefault_disabled`.
        pub const PAGEFAULT_DISABLED: usize = 88;
        /// Offset of `migration_disabled`.
        pub const MIGRATION_DISABLED: usize = 92;
    }
    /// `struct guardrail_record`.
    pub mod record {
        /// Its size.
        pub const BYTES: usize = 200;
        /// Offset of `task`.
        pub const TASK: usize = 0;
        /// Offset of `previous`.
        pub const PREVIOUS: usize = 8;
        /// Offset of `previous_limit`.
        pub const PREVIOUS_LIMIT: usize = 16;
        /// Offset of `entry`.
        pub const ENTRY: usize = 24;
        /// Offset of `saved`.
        pub const SAVED: usize = 32;
        /// Offset of `call`.
        pub const CALL: usize = 128;
    }
    /// `struct guardrail_violation`.
    pub mod violation {
        /// Its size.
        pub const BYTES: usize = 48;
        /// Offset of `what`.
        pub const WHAT: usize = 0;
        /// Offset of `addr`.
        pub const ADDR: usize = 8;
        /// Offset of `ip`.
        pub const IP: usize = 16;
        /// Offset of `domain`.
        pub const DOMAIN: usize = 24;
        /// Offset of `holds`.
        pub const HOLDS: usize = 32;
        /// Offset of `needs`.
        pub const NEEDS: usize = 40;
    }
    /// `struct guardrail_usage`.
    pub mod usage {
        /// Its size.
        pub const BYTES: usize = 56;
        /// Offset of `table_pages`.
        pub const TABLE_PAGES: usize = 0;
        /// Offset of `tree_pages`.
        pub const TREE_PAGES: usize = 8;
        /// Offset of `reserve`.
        pub const RESERVE: usize = 16;
        /// Offset of `conflicts`.
        pub const CONFLICTS: usize = 24;
        /// Offset of `records`.
        pub const RECORDS: usize = 32;
        /// Offset of `inside`.
        pub const INSIDE: usize = 40;
        /// Offset of `masks`.
        pub const MASKS: usize = 48;
    }
}

/// Names of the runtime's functions and variables.
pub mod symbol {
    /// `guardrail_table`.
    pub const TABLE: &str = "guardrail_table";
    /// `guardrail_transacting`.
    pub const TRANSACTING: &str = "guardrail_transacting";
    /// `guardrail_module_enter`.
    pub const MODULE_ENTER: &str = "guardrail_module_enter";
    /// `guardrail_module_leave`.
    pub const MODULE_LEAVE: &str = "guardrail_module_leave";
    /// `guardrail_write_slow`.
    pub const WRITE_SLOW: &str = "guardrail_write_slow";
    /// `guardrail_range_slow`.
    pub const RANGE_SLOW: &str = "guardrail_range_slow";
    /// `guardrail_percpu_slow`.
    pub const PERCPU_SLOW: &str = "guardrail_percpu_slow";
    /// `guardrail_beyond_slow`.
    pub const BEYOND_SLOW: &str = "guardrail_beyond_slow";
    /// `guardrail_call_slow`.
    pub const CALL_SLOW: &str = "guardrail_call_slow";
    /// `guardrail_port_slow`.
    pub const PORT_SLOW: &str = "guardrail_port_slow";
    /// `guardrail_loops`.
    pub const LOOPS: &str = "guardrail_loops";
    /// `guardrail_loop_slow`.
    pub const LOOP_SLOW: &str = "guardrail_loop_slow";
    /// `guardrail_frames`.
    pub const FRAMES: &str = "guardrail_frames";
    /// `guardrail_frame_slow`.
    pub const FRAME_SLOW: &str = "guardrail_frame_slow";
    /// `guardrail_prepare`.
    pub const PREPARE: &str = "guardrail_prepare";
    /// `guardrail_grant_fresh`.
    pub const GRANT_FRESH: &str = "guardrail_grant_fresh";
    /// `guardrail_grant`.
    pub const GRANT: &str = "guardrail_grant";
    /// `guardrail_revoke`.
    pub const REVOKE: &str = "guardrail_revoke";
    /// `guardrail_check_write`.
    pub const CHECK_WRITE: &str = "guardrail_check_write";
    /// `guardrail_grant_fields`.
    pub const GRANT_FIELDS: &str = "guardrail_grant_fields";
    /// `guardrail_create_object`.
    pub const CREATE_OBJECT: &str = "guardrail_create_object";
    /// `guardrail_destroy_skb`.
    pub const DESTROY_SKB: &str = "guardrail_destroy_skb";
    /// `guardrail_check_object`.
    pub const CHECK_OBJECT: &str = "guardrail_check_object";
    /// `guardrail_object_state`.
    pub const OBJECT_STATE: &str = "guardrail_object_state";
    /// `guardrail_move_object`.
    pub const MOVE_OBJECT: &str = "guardrail_move_object";
    /// `guardrail_destroy_object`.
    pub const DESTROY_OBJECT: &str = "guardrail_destroy_object";
    /// `guardrail_find_object`.
    pub const FIND_OBJECT: &str = "guardrail_find_object";
    /// `guardrail_find_irq`.
    pub const FIND_IRQ: &str = "guardrail_find_irq";
    /// `guardrail_own`.
    pub const OWN: &str = "guardrail_own";
    /// `guardrail_check_owner`.
    pub const CHECK_OWNER: &str = "guardrail_check_owner";
    /// `guardrail_disown`.
    pub const DISOWN: &str = "guardrail_disown";
    /// `guardrail_grant_call`.
    pub const GRANT_CALL: &str = "guardrail_grant_call";
    /// `guardrail_check_call`.
    pub const CHECK_CALL: &str = "guardrail_check_call";
    /// `guardrail_walk`.
    pub const WALK: &str = "guardrail_walk";
    /// `guardrail_revoke_all`.
    pub const REVOKE_ALL: &str = "guardrail_revoke_all";
    /// `guardrail_event`.
    pub const EVENT: &str = "guardrail_event";
    /// `guardrail_listen`.
    pub const LISTEN: &str = "guardrail_listen";
    /// `guardrail_unlisten`.
    pub const UNLISTEN: &str = "guardrail_unlisten";
    /// `guardrail_do_grant`.
    pub const DO_GRANT: &str = "guardrail_do_grant";
    /// `guardrail_do_revoke`.
    pub const DO_REVOKE: &str = "guardrail_do_revoke";
    /// `guardrail_do_require_write`.
    pub const DO_REQUIRE_WRITE: &str = "guardrail_do_require_write";
    /// `guardrail_do_own`.
    pub const DO_OWN: &str = "guardrail_do_own";
    /// `guardrail_do_disown`.
    pub const DO_DISOWN: &str = "guardrail_do_disown";
    /// `guardrail_do_grant_fields`.
    pub const DO_GRANT_FIELDS: &str = "guardrail_do_grant_fields";
    /// `guardrail_do_revoke_fields`.
    pub const DO_REVOKE_FIELDS: &str = "guardrail_do_revoke_fields";
    /// `guardrail_do_create_object`.
    pub const DO_CREATE_OBJECT: &str = "guardrail_do_create_object";
    /// `guardrail_do_require_object`.
    pub const DO_REQUIRE_OBJECT: &str = "guardrail_do_require_object";
    /// `guardrail_do_move_object`.
    pub const DO_MOVE_OBJECT: &str = "guardrail_do_move_object";
    /// `guardrail_do_destroy_object`.
    pub const DO_DESTROY_OBJECT: &str = "guardrail_do_destroy_object";
    /// `guardrail_do_forget_object`.
    pub const DO_FORGET_OBJECT: &str = "guardrail_do_forget_object";
    /// `guardrail_do_require_call`.
    pub const DO_REQUIRE_CALL: &str = "guardrail_do_require_call";
    /// `guardrail_do_require_calls`.
    pub const DO_REQUIRE_CALLS: &str = "guardrail_do_require_calls";
    /// `guardrail_do_exit`.
    pub const DO_EXIT: &str = "guardrail_do_exit";
    /// `guardrail_do_registers`.
    pub const DO_REGISTERS: &str = "guardrail_do_registers";
    /// `guardrail_do_unregisters`.
    pub const DO_UNREGISTERS: &str = "guardrail_do_unregisters";
    /// `guardrail_do_defer`.
    pub const DO_DEFER: &str = "guardrail_do_defer";
    /// `guardrail_do_reverse`.
    pub const DO_REVERSE: &str = "guardrail_do_reverse";
    /// `guardrail_do_touch`.
    pub const DO_TOUCH: &str = "guardrail_do_touch";
    /// `guardrail_do_save`.
    pub const DO_SAVE: &str = "guardrail_do_save";
    /// `guardrail_do_irrevocable`.
    pub const DO_IRREVOCABLE: &str = "guardrail_do_irrevocable";
    /// `guardrail_applies`.
    pub const APPLIES: &str = "guardrail_applies";
    /// `guardrail_value`.
    pub const VALUE: &str = "guardrail_value";
    /// `guardrail_refuse`.
    pub const REFUSE: &str = "guardrail_refuse";
    /// `guardrail_require_write`.
    pub const REQUIRE_WRITE: &str = "guardrail_require_write";
    /// `guardrail_enter`.
    pub const ENTER: &str = "guardrail_enter";
    /// `guardrail_leave`.
    pub const LEAVE: &str = "guardrail_leave";
    /// `guardrail_unwind`.
    pub const UNWIND: &str = "guardrail_unwind";
    /// `guardrail_kill`.
    pub const KILL: &str = "guardrail_kill";
    /// `guardrail_is_dead`.
    pub const IS_DEAD: &str = "guardrail_is_dead";
    /// `guardrail_report`.
    pub const REPORT: &str = "guardrail_report";
    /// `guardrail_violations`.
    pub const VIOLATIONS: &str = "guardrail_violations";
    /// `guardrail_usage`.
    pub const USAGE: &str = "guardrail_usage";
}

/// Expressions of C with the values that they have here, for the test that asks a compiler.
#[doc(hidden)]
pub const IN_C: &[(&str, u64)] = &[
    ("GUARDRAIL_ABI", ABI as u64),
    ("GUARDRAIL_MAGIC", MAGIC as u64),
    ("GUARDRAIL_SLOT_SHIFT", SLOT_SHIFT as u64),
    ("GUARDRAIL_SLOT", SLOT as u64),
    ("GUARDRAIL_DOMAINS", DOMAINS as u64),
    ("GUARDRAIL_MASKS", MASKS as u64),
    ("GUARDRAIL_SINGLE_MASKS", SINGLE_MASKS as u64),
    ("GUARDRAIL_CONFLICT", CONFLICT as u64),
    ("GUARDRAIL_FLAGS", FLAGS as u64),
    ("GUARDRAIL_ANY_STATE", ANY_STATE as u64),
    ("GUARDRAIL_MAX_TERMS", MAX_TERMS as u64),
    ("GUARDRAIL_MAX_DEPTH", MAX_DEPTH as u64),
    ("GUARDRAIL_WORD_RESULT", WORD_RESULT as u64),
    ("GUARDRAIL_WORD_STACK", WORD_STACK as u64),
    ("GUARDRAIL_PROTO_COUNT", PROTO_COUNT as u64),
    ("GUARDRAIL_PROTO_VARIADIC", PROTO_VARIADIC as u64),
    ("GUARDRAIL_PROTO_KNOWN", PROTO_KNOWN as u64),
    ("GUARDRAIL_PROTO_SHIFT", PROTO_SHIFT as u64),
    ("GUARDRAIL_PROTO_MOST", PROTO_MOST as u64),
    ("GUARDRAIL_PROTO_NUMBER", PROTO_NUMBER as u64),
    ("GUARDRAIL_PROTO_POINTER", PROTO_POINTER as u64),
    ("GUARDRAIL_PROTO_OTHER", PROTO_OTHER as u64),
    ("GUARDRAIL_SPILL_WORDS", SPILL_WORDS as u64),
    ("GUARDRAIL_SPILL_BY_RBP", SPILL_BY_RBP as u64),
    ("GUARDRAIL_SPILL_TOP", SPILL_TOP as u64),
    ("GUARDRAIL_SPILL_ALL", SPILL_ALL as u64),
    ("GUARDRAIL_MAX_KINDS", MAX_KINDS as u64),
    ("GUARDRAIL_READ", READ as u64),
    ("GUARDRAIL_WRITE", WRITE as u64),
    ("GUARDRAIL_WRITE_LOW", WRITE_LOW as u64),
    ("GUARDRAIL_WRITE_HIGH", WRITE_HIGH as u64),
    ("GUARDRAIL_CALL", CALL as u64),
    ("GUARDRAIL_OWNER", OWNER as u64),
    ("GUARDRAIL_OBJECT", OBJECT as u64),
    ("GUARDRAIL_OBJECT_WRITE", OBJECT_WRITE as u64),
    ("GUARDRAIL_MASK", MASK as u64),
    ("GUARDRAIL_SKB", SKB as u64),
    ("GUARDRAIL_ACTION_GRANT", ACTION_GRANT as u64),
    ("GUARDRAIL_ACTION_REVOKE", ACTION_REVOKE as u64),
    ("GUARDRAIL_ACTION_REQUIRE_WRITE", ACTION_REQUIRE_WRITE as u64),
    ("GUARDRAIL_ACTION_OWN", ACTION_OWN as u64),
    ("GUARDRAIL_ACTION_DISOWN", ACTION_DISOWN as u64),
    ("GUARDRAIL_ACTION_GRANT_FIELDS", ACTION_GRANT_FIELDS as u64),
    ("GUARDRAIL_ACTION_REVOKE_FIELDS", ACTION_REVOKE_FIELDS as u64),
    ("GUARDRAIL_ACTION_CREATE_OBJECT", ACTION_CREATE_OBJECT as u64),
    ("GUARDRAIL_ACTION_REQUIRE_OBJECT", ACTION_REQUIRE_OBJECT as u64),
    ("GUARDRAIL_ACTION_MOVE_OBJECT", ACTION_MOVE_OBJECT as u64),
    ("GUARDRAIL_ACTION_FORGET_OBJECT", ACTION_FORGET_OBJECT as u64),
    ("GUARDRAIL_ACTION_REQUIRE_CALL", ACTION_REQUIRE_CALL as u64),
    ("GUARDRAIL_ACTION_EXIT", ACTION_EXIT as u64),
    ("GUARDRAIL_ACTION_CUSTOM", ACTION_CUSTOM as u64),
    ("GUARDRAIL_ACTION_DESTROY_OBJECT", ACTION_DESTROY_OBJECT as u64),
    ("GUARDRAIL_ACTION_REGISTERS", ACTION_REGISTERS as u64),
    ("GUARDRAIL_ACTION_UNREGISTERS", ACTION_UNREGISTERS as u64),
    ("GUARDRAIL_ACTION_REQUIRE_CALLS", ACTION_REQUIRE_CALLS as u64),
    ("GUARDRAIL_ACTION_DEFER", ACTION_DEFER as u64),
    ("GUARDRAIL_ACTION_REVERSE", ACTION_REVERSE as u64),
    ("GUARDRAIL_ACTION_TOUCH", ACTION_TOUCH as u64),
    ("GUARDRAIL_ACTION_IRREVOCABLE", ACTION_IRREVOCABLE as u64),
    ("GUARDRAIL_ACTION_SAVE", ACTION_SAVE as u64),
    ("GUARDRAIL_ALWAYS", ALWAYS as u64),
    ("GUARDRAIL_RESULT_VALID", RESULT_VALID as u64),
    ("GUARDRAIL_RESULT_ZERO", RESULT_ZERO as u64),
    ("GUARDRAIL_RESULT_NOT_NEGATIVE", RESULT_NOT_NEGATIVE as u64),
    ("GUARDRAIL_RESULT_TRUE", RESULT_TRUE as u64),
    ("GUARDRAIL_NONZERO", NONZERO as u64),
    ("GUARDRAIL_OF_ENTRY", OF_ENTRY as u64),
    ("GUARDRAIL_VALUE_CONST", VALUE_CONST as u64),
    ("GUARDRAIL_VALUE_WORD", VALUE_WORD as u64),
    ("GUARDRAIL_VALUE_TERMS", VALUE_TERMS as u64),
    ("GUARDRAIL_VALUE_HALF", VALUE_HALF as u64),
    ("GUARDRAIL_TERM_CONST", TERM_CONST as u64),
    ("GUARDRAIL_TERM_WORD", TERM_WORD as u64),
    ("GUARDRAIL_TERM_LOAD", TERM_LOAD as u64),
    ("GUARDRAIL_TERM_LOW", TERM_LOW as u64),
    ("GUARDRAIL_TERM_ADD", TERM_ADD as u64),
    ("GUARDRAIL_TERM_MUL", TERM_MUL as u64),
    ("GUARDRAIL_TERM_SHL", TERM_SHL as u64),
    ("GUARDRAIL_KIND_SLAB", KIND_SLAB as u64),
    ("GUARDRAIL_KIND_VMALLOC", KIND_VMALLOC as u64),
    ("GUARDRAIL_KIND_PAGE", KIND_PAGE as u64),
    ("GUARDRAIL_KIND_PERCPU", KIND_PERCPU as u64),
    ("GUARDRAIL_KIND_DMA", KIND_DMA as u64),
    ("GUARDRAIL_KIND_IO", KIND_IO as u64),
    ("GUARDRAIL_KIND_MANAGED", KIND_MANAGED as u64),
    ("GUARDRAIL_KIND_FRAG", KIND_FRAG as u64),
    ("GUARDRAIL_TYPE_NETDEV", TYPE_NETDEV as u64),
    ("GUARDRAIL_TYPE_NAPI", TYPE_NAPI as u64),
    ("GUARDRAIL_TYPE_TIMER", TYPE_TIMER as u64),
    ("GUARDRAIL_TYPE_WORK", TYPE_WORK as u64),
    ("GUARDRAIL_TYPE_SKB", TYPE_SKB as u64),
    ("GUARDRAIL_TYPE_SCSI_CMND", TYPE_SCSI_CMND as u64),
    ("GUARDRAIL_KIND_HOSTDATA", KIND_HOSTDATA as u64),
    ("GUARDRAIL_TYPE_MISCDEVICE", TYPE_MISCDEVICE as u64),
    ("GUARDRAIL_TYPE_RCU_HEAD", TYPE_RCU_HEAD as u64),
    ("GUARDRAIL_TYPE_POOL", TYPE_POOL as u64),
    ("GUARDRAIL_TYPE_URB", TYPE_URB as u64),
    ("GUARDRAIL_KIND_POOLED", KIND_POOLED as u64),
    ("GUARDRAIL_EVENT_LOAD", EVENT_LOAD as u64),
    ("GUARDRAIL_EVENT_STORE", EVENT_STORE as u64),
    ("GUARDRAIL_EVENT_CALL", EVENT_CALL as u64),
    ("GUARDRAIL_EVENT_ENTRY", EVENT_ENTRY as u64),
    ("GUARDRAIL_EVENT_EXIT", EVENT_EXIT as u64),
    ("GUARDRAIL_EVENTS", EVENTS as u64),
    ("GUARDRAIL_EVENT_PERCPU", EVENT_PERCPU as u64),
    ("GUARDRAIL_ENTRY_CALLERS_STACK", ENTRY_CALLERS_STACK as u64),
    ("GUARDRAIL_ENTRY_EXIT", ENTRY_EXIT as u64),
    ("GUARDRAIL_ENTRY_SELECTED", ENTRY_SELECTED as u64),
    ("GUARDRAIL_ENTRY_BINDS", ENTRY_BINDS as u64),
    ("GUARDRAIL_ENTRY_POWER", ENTRY_POWER as u64),
    ("GUARDRAIL_ENTRY_POLL", ENTRY_POLL as u64),
    ("GUARDRAIL_STACK_MASK", STACK_MASK as u64),
    ("sizeof(struct guardrail_range)", layout::range::BYTES as u64),
    ("offsetof(struct guardrail_range, start)", layout::range::START as u64),
    ("sizeof(((struct guardrail_range *)0)->start)", 8),
    ("offsetof(struct guardrail_range, len)", layout::range::LEN as u64),
    ("sizeof(((struct guardrail_range *)0)->len)", 8),
    ("sizeof(struct guardrail_import)", layout::import::BYTES as u64),
    ("offsetof(struct guardrail_import, function)", layout::import::FUNCTION as u64),
    ("sizeof(((struct guardrail_import *)0)->function)", 8),
    ("offsetof(struct guardrail_import, call)", layout::import::CALL as u64),
    ("sizeof(((struct guardrail_import *)0)->call)", 8),
    ("offsetof(struct guardrail_import, proto)", layout::import::PROTO as u64),
    ("sizeof(((struct guardrail_import *)0)->proto)", 4),
    ("offsetof(struct guardrail_import, reserved)", layout::import::RESERVED as u64),
    ("sizeof(((struct guardrail_import *)0)->reserved)", 4),
    ("sizeof(struct guardrail_spill)", layout::spill::BYTES as u64),
    ("offsetof(struct guardrail_spill, at)", layout::spill::AT as u64),
    ("sizeof(((struct guardrail_spill *)0)->at)", 4),
    ("offsetof(struct guardrail_spill, words)", layout::spill::WORDS as u64),
    ("sizeof(((struct guardrail_spill *)0)->words)", 4),
    ("sizeof(struct guardrail_own_function)", layout::own_function::BYTES as u64),
    ("offsetof(struct guardrail_own_function, function)", layout::own_function::FUNCTION as u64),
    ("sizeof(((struct guardrail_own_function *)0)->function)", 8),
    ("offsetof(struct guardrail_own_function, type)", layout::own_function::TYPE as u64),
    ("sizeof(((struct guardrail_own_function *)0)->type)", 4),
    ("offsetof(struct guardrail_own_function, reserved)", layout::own_function::RESERVED as u64),
    ("sizeof(((struct guardrail_own_function *)0)->reserved)", 4),
    ("sizeof(struct guardrail_text)", layout::text::BYTES as u64),
    ("offsetof(struct guardrail_text, end)", layout::text::END as u64),
    ("sizeof(((struct guardrail_text *)0)->end)", 8),
    ("offsetof(struct guardrail_text, len)", layout::text::LEN as u64),
    ("sizeof(((struct guardrail_text *)0)->len)", 8),
    ("offsetof(struct guardrail_text, spills)", layout::text::SPILLS as u64),
    ("sizeof(((struct guardrail_text *)0)->spills)", 8),
    ("offsetof(struct guardrail_text, n_spills)", layout::text::N_SPILLS as u64),
    ("sizeof(((struct guardrail_text *)0)->n_spills)", 8),
    ("sizeof(struct guardrail_module)", layout::module::BYTES as u64),
    ("offsetof(struct guardrail_module, magic)", layout::module::MAGIC as u64),
    ("sizeof(((struct guardrail_module *)0)->magic)", 4),
    ("offsetof(struct guardrail_module, abi)", layout::module::ABI as u64),
    ("sizeof(((struct guardrail_module *)0)->abi)", 4),
    ("offsetof(struct guardrail_module, domain)", layout::module::DOMAIN as u64),
    ("sizeof(((struct guardrail_module *)0)->domain)", 4),
    ("offsetof(struct guardrail_module, flags)", layout::module::FLAGS as u64),
    ("sizeof(((struct guardrail_module *)0)->flags)", 4),
    ("offsetof(struct guardrail_module, name)", layout::module::NAME as u64),
    ("sizeof(((struct guardrail_module *)0)->name)", 8),
    ("offsetof(struct guardrail_module, init)", layout::module::INIT as u64),
    ("sizeof(((struct guardrail_module *)0)->init)", 8),
    ("offsetof(struct guardrail_module, exit)", layout::module::EXIT as u64),
    ("sizeof(((struct guardrail_module *)0)->exit)", 8),
    ("offsetof(struct guardrail_module, writable)", layout::module::WRITABLE as u64),
    ("sizeof(((struct guardrail_module *)0)->writable)", 8),
    ("offsetof(struct guardrail_module, n_writable)", layout::module::N_WRITABLE as u64),
    ("sizeof(((struct guardrail_module *)0)->n_writable)", 8),
    ("offsetof(struct guardrail_module, init_only)", layout::module::INIT_ONLY as u64),
    ("sizeof(((struct guardrail_module *)0)->init_only)", 8),
    ("offsetof(struct guardrail_module, n_init_only)", layout::module::N_INIT_ONLY as u64),
    ("sizeof(((struct guardrail_module *)0)->n_init_only)", 8),
    ("offsetof(struct guardrail_module, targets)", layout::module::TARGETS as u64),
    ("sizeof(((struct guardrail_module *)0)->targets)", 8),
    ("offsetof(struct guardrail_module, n_targets)", layout::module::N_TARGETS as u64),
    ("sizeof(((struct guardrail_module *)0)->n_targets)", 8),
    ("offsetof(struct guardrail_module, imports)", layout::module::IMPORTS as u64),
    ("sizeof(((struct guardrail_module *)0)->imports)", 8),
    ("offsetof(struct guardrail_module, n_imports)", layout::module::N_IMPORTS as u64),
    ("sizeof(((struct guardrail_module *)0)->n_imports)", 8),
    ("offsetof(struct guardrail_module, ruled)", layout::module::RULED as u64),
    ("sizeof(((struct guardrail_module *)0)->ruled)", 4),
    ("offsetof(struct guardrail_module, imported)", layout::module::IMPORTED as u64),
    ("sizeof(((struct guardrail_module *)0)->imported)", 4),
    ("offsetof(struct guardrail_module, threshold)", layout::module::THRESHOLD as u64),
    ("sizeof(((struct guardrail_module *)0)->threshold)", 4),
    ("offsetof(struct guardrail_module, reserved)", layout::module::RESERVED as u64),
    ("sizeof(((struct guardrail_module *)0)->reserved)", 4),
    ("offsetof(struct guardrail_module, calls)", layout::module::CALLS as u64),
    ("sizeof(((struct guardrail_module *)0)->calls)", 8),
    ("offsetof(struct guardrail_module, n_calls)", layout::module::N_CALLS as u64),
    ("sizeof(((struct guardrail_module *)0)->n_calls)", 8),
    ("offsetof(struct guardrail_module, entries)", layout::module::ENTRIES as u64),
    ("sizeof(((struct guardrail_module *)0)->entries)", 8),
    ("offsetof(struct guardrail_module, n_entries)", layout::module::N_ENTRIES as u64),
    ("sizeof(((struct guardrail_module *)0)->n_entries)", 8),
    ("offsetof(struct guardrail_module, texts)", layout::module::TEXTS as u64),
    ("sizeof(((struct guardrail_module *)0)->texts)", 8),
    ("offsetof(struct guardrail_module, n_texts)", layout::module::N_TEXTS as u64),
    ("sizeof(((struct guardrail_module *)0)->n_texts)", 8),
    ("offsetof(struct guardrail_module, transacts)", layout::module::TRANSACTS as u64),
    ("sizeof(((struct guardrail_module *)0)->transacts)", 8),
    ("offsetof(struct guardrail_module, n_transacts)", layout::module::N_TRANSACTS as u64),
    ("sizeof(((struct guardrail_module *)0)->n_transacts)", 8),
    ("sizeof(struct guardrail_field)", layout::field::BYTES as u64),
    ("offsetof(struct guardrail_field, offset)", layout::field::OFFSET as u64),
    ("sizeof(((struct guardrail_field *)0)->offset)", 4),
    ("offsetof(struct guardrail_field, size)", layout::field::SIZE as u64),
    ("sizeof(((struct guardrail_field *)0)->size)", 4),
    ("sizeof(struct guardrail_held)", layout::held::BYTES as u64),
    ("offsetof(struct guardrail_held, start)", layout::held::START as u64),
    ("sizeof(((struct guardrail_held *)0)->start)", 8),
    ("offsetof(struct guardrail_held, len)", layout::held::LEN as u64),
    ("sizeof(((struct guardrail_held *)0)->len)", 8),
    ("offsetof(struct guardrail_held, domain)", layout::held::DOMAIN as u64),
    ("sizeof(((struct guardrail_held *)0)->domain)", 4),
    ("offsetof(struct guardrail_held, right)", layout::held::RIGHT as u64),
    ("sizeof(((struct guardrail_held *)0)->right)", 4),
    ("offsetof(struct guardrail_held, type)", layout::held::TYPE as u64),
    ("sizeof(((struct guardrail_held *)0)->type)", 4),
    ("offsetof(struct guardrail_held, state)", layout::held::STATE as u64),
    ("sizeof(((struct guardrail_held *)0)->state)", 4),
    ("sizeof(struct guardrail_call)", layout::call::BYTES as u64),
    ("offsetof(struct guardrail_call, args)", layout::call::ARGS as u64),
    ("sizeof(((struct guardrail_call *)0)->args)", 48),
    ("offsetof(struct guardrail_call, result)", layout::call::RESULT as u64),
    ("sizeof(((struct guardrail_call *)0)->result)", 8),
    ("offsetof(struct guardrail_call, second)", layout::call::SECOND as u64),
    ("sizeof(((struct guardrail_call *)0)->second)", 8),
    ("offsetof(struct guardrail_call, caller)", layout::call::CALLER as u64),
    ("sizeof(((struct guardrail_call *)0)->caller)", 8),
    ("offsetof(struct guardrail_call, stack)", layout::call::STACK as u64),
    ("sizeof(struct guardrail_term)", layout::term::BYTES as u64),
    ("offsetof(struct guardrail_term, op)", layout::term::OP as u64),
    ("sizeof(((struct guardrail_term *)0)->op)", 1),
    ("offsetof(struct guardrail_term, n)", layout::term::N as u64),
    ("sizeof(((struct guardrail_term *)0)->n)", 1),
    ("offsetof(struct guardrail_term, reserved)", layout::term::RESERVED as u64),
    ("sizeof(((struct guardrail_term *)0)->reserved)", 6),
    ("offsetof(struct guardrail_term, operand)", layout::term::OPERAND as u64),
    ("sizeof(((struct guardrail_term *)0)->operand)", 8),
    ("sizeof(struct guardrail_value)", layout::value::BYTES as u64),
    ("offsetof(struct guardrail_value, kind)", layout::value::KIND as u64),
    ("sizeof(((struct guardrail_value *)0)->kind)", 1),
    ("offsetof(struct guardrail_value, word)", layout::value::WORD as u64),
    ("sizeof(((struct guardrail_value *)0)->word)", 1),
    ("offsetof(struct guardrail_value, n_terms)", layout::value::N_TERMS as u64),
    ("sizeof(((struct guardrail_value *)0)->n_terms)", 2),
    ("offsetof(struct guardrail_value, reserved)", layout::value::RESERVED as u64),
    ("sizeof(((struct guardrail_value *)0)->reserved)", 4),
    ("offsetof(struct guardrail_value, constant)", layout::value::CONSTANT as u64),
    ("sizeof(((struct guardrail_value *)0)->constant)", 8),
    ("offsetof(struct guardrail_value, terms)", layout::value::TERMS as u64),
    ("sizeof(((struct guardrail_value *)0)->terms)", 8),
    ("sizeof(struct guardrail_action)", layout::action::BYTES as u64),
    ("offsetof(struct guardrail_action, kind)", layout::action::KIND as u64),
    ("sizeof(((struct guardrail_action *)0)->kind)", 1),
    ("offsetof(struct guardrail_action, when)", layout::action::WHEN as u64),
    ("sizeof(((struct guardrail_action *)0)->when)", 1),
    ("offsetof(struct guardrail_action, when_word)", layout::action::WHEN_WORD as u64),
    ("sizeof(((struct guardrail_action *)0)->when_word)", 1),
    ("offsetof(struct guardrail_action, domain)", layout::action::DOMAIN as u64),
    ("sizeof(((struct guardrail_action *)0)->domain)", 1),
    ("offsetof(struct guardrail_action, type)", layout::action::TYPE as u64),
    ("sizeof(((struct guardrail_action *)0)->type)", 4),
    ("offsetof(struct guardrail_action, from)", layout::action::FROM as u64),
    ("sizeof(((struct guardrail_action *)0)->from)", 4),
    ("offsetof(struct guardrail_action, to)", layout::action::TO as u64),
    ("sizeof(((struct guardrail_action *)0)->to)", 4),
    ("offsetof(struct guardrail_action, pointer)", layout::action::POINTER as u64),
    ("sizeof(((struct guardrail_action *)0)->pointer)", 16),
    ("offsetof(struct guardrail_action, size)", layout::action::SIZE as u64),
    ("sizeof(((struct guardrail_action *)0)->size)", 16),
    ("offsetof(struct guardrail_action, fields)", layout::action::FIELDS as u64),
    ("sizeof(((struct guardrail_action *)0)->fields)", 8),
    ("offsetof(struct guardrail_action, n_fields)", layout::action::N_FIELDS as u64),
    ("sizeof(((struct guardrail_action *)0)->n_fields)", 4),
    ("offsetof(struct guardrail_action, n_more)", layout::action::N_MORE as u64),
    ("sizeof(((struct guardrail_action *)0)->n_more)", 4),
    ("offsetof(struct guardrail_action, function)", layout::action::FUNCTION as u64),
    ("sizeof(((struct guardrail_action *)0)->function)", 8),
    ("offsetof(struct guardrail_action, more)", layout::action::MORE as u64),
    ("sizeof(((struct guardrail_action *)0)->more)", 8),
    ("offsetof(struct guardrail_action, inverse)", layout::action::INVERSE as u64),
    ("sizeof(((struct guardrail_action *)0)->inverse)", 8),
    ("offsetof(struct guardrail_action, target)", layout::action::TARGET as u64),
    ("sizeof(((struct guardrail_action *)0)->target)", 8),
    ("sizeof(struct guardrail_entry)", layout::entry::BYTES as u64),
    ("offsetof(struct guardrail_entry, domain)", layout::entry::DOMAIN as u64),
    ("sizeof(((struct guardrail_entry *)0)->domain)", 4),
    ("offsetof(struct guardrail_entry, flags)", layout::entry::FLAGS as u64),
    ("sizeof(((struct guardrail_entry *)0)->flags)", 4),
    ("offsetof(struct guardrail_entry, dead)", layout::entry::DEAD as u64),
    ("sizeof(((struct guardrail_entry *)0)->dead)", 8),
    ("offsetof(struct guardrail_entry, function)", layout::entry::FUNCTION as u64),
    ("sizeof(((struct guardrail_entry *)0)->function)", 8),
    ("offsetof(struct guardrail_entry, pointers)", layout::entry::POINTERS as u64),
    ("sizeof(((struct guardrail_entry *)0)->pointers)", 4),
    ("offsetof(struct guardrail_entry, kept)", layout::entry::KEPT as u64),
    ("sizeof(((struct guardrail_entry *)0)->kept)", 4),
    ("sizeof(struct guardrail_saved)", layout::saved::BYTES as u64),
    ("offsetof(struct guardrail_saved, rbx)", layout::saved::RBX as u64),
    ("sizeof(((struct guardrail_saved *)0)->rbx)", 8),
    ("offsetof(struct guardrail_saved, rbp)", layout::saved::RBP as u64),
    ("sizeof(((struct guardrail_saved *)0)->rbp)", 8),
    ("offsetof(struct guardrail_saved, r12)", layout::saved::R12 as u64),
    ("sizeof(((struct guardrail_saved *)0)->r12)", 8),
    ("offsetof(struct guardrail_saved, r13)", layout::saved::R13 as u64),
    ("sizeof(((struct guardrail_saved *)0)->r13)", 8),
    ("offsetof(struct guardrail_saved, r14)", layout::saved::R14 as u64),
    ("sizeof(((struct guardrail_saved *)0)->r14)", 8),
    ("offsetof(struct guardrail_saved, r15)", layout::saved::R15 as u64),
    ("sizeof(((struct guardrail_saved *)0)->r15)", 8),
    ("offsetof(struct guardrail_saved, sp)", layout::saved::SP as u64),
    ("sizeof(((struct guardrail_saved *)0)->sp)", 8),
    ("offsetof(struct guardrail_saved, ip)", layout::saved::IP as u64),
    ("sizeof(((struct guardrail_saved *)0)->ip)", 8),
    ("offsetof(struct guardrail_saved, flags)", layout::saved::FLAGS as u64),
    ("sizeof(((struct guardrail_saved *)0)->flags)", 8),
    ("offsetof(struct guardrail_saved, unwound)", layout::saved::UNWOUND as u64),
    ("sizeof(((struct guardrail_saved *)0)->unwound)", 8),
    ("offsetof(struct guardrail_saved, preempt_count)", layout::saved::PREEMPT_COUNT as u64),
    ("sizeof(((struct guardrail_saved *)0)->preempt_count)", 4),
    ("offsetof(struct guardrail_saved, rcu_nesting)", layout::saved::RCU_NESTING as u64),
    ("sizeof(((struct guardrail_saved *)0)->rcu_nesting)", 4),
    ("offsetof(struct guardrail_saved, pagefault_disabled)", layout::saved::PAGEFAULT_DISABLED as u64),
    ("sizeof(((struct guardrail_saved *)0)->pagefault_disabled)", 4),
    ("offsetof(struct guardrail_saved, migration_disabled)", layout::saved::MIGRATION_DISABLED as u64),
    ("sizeof(((struct guardrail_saved *)0)->migration_disabled)", 4),
    ("sizeof(struct guardrail_record)", layout::record::BYTES as u64),
    ("offsetof(struct guardrail_record, task)", layout::record::TASK as u64),
    ("sizeof(((struct guardrail_record *)0)->task)", 8),
    ("offsetof(struct guardrail_record, previous)", layout::record::PREVIOUS as u64),
    ("sizeof(((struct guardrail_record *)0)->previous)", 8),
    ("offsetof(struct guardrail_record, previous_limit)", layout::record::PREVIOUS_LIMIT as u64),
    ("sizeof(((struct guardrail_record *)0)->previous_limit)", 8),
    ("offsetof(struct guardrail_record, entry)", layout::record::ENTRY as u64),
    ("sizeof(((struct guardrail_record *)0)->entry)", 8),
    ("offsetof(struct guardrail_record, saved)", layout::record::SAVED as u64),
    ("sizeof(((struct guardrail_record *)0)->saved)", 96),
    ("offsetof(struct guardrail_record, call)", layout::record::CALL as u64),
    ("sizeof(((struct guardrail_record *)0)->call)", 72),
    ("sizeof(struct guardrail_violation)", layout::violation::BYTES as u64),
    ("offsetof(struct guardrail_violation, what)", layout::violation::WHAT as u64),
    ("sizeof(((struct guardrail_violation *)0)->what)", 8),
    ("offsetof(struct guardrail_violation, addr)", layout::violation::ADDR as u64),
    ("sizeof(((struct guardrail_violation *)0)->addr)", 8),
    ("offsetof(struct guardrail_violation, ip)", layout::violation::IP as u64),
    ("sizeof(((struct guardrail_violation *)0)->ip)", 8),
    ("offsetof(struct guardrail_violation, domain)", layout::violation::DOMAIN as u64),
    ("sizeof(((struct guardrail_violation *)0)->domain)", 4),
    ("offsetof(struct guardrail_violation, holds)", layout::violation::HOLDS as u64),
    ("sizeof(((struct guardrail_violation *)0)->holds)", 8),
    ("offsetof(struct guardrail_violation, needs)", layout::violation::NEEDS as u64),
    ("sizeof(((struct guardrail_violation *)0)->needs)", 8),
    ("sizeof(struct guardrail_usage)", layout::usage::BYTES as u64),
    ("offsetof(struct guardrail_usage, table_pages)", layout::usage::TABLE_PAGES as u64),
    ("sizeof(((struct guardrail_usage *)0)->table_pages)", 8),
    ("offsetof(struct guardrail_usage, tree_pages)", layout::usage::TREE_PAGES as u64),
    ("sizeof(((struct guardrail_usage *)0)->tree_pages)", 8),
    ("offsetof(struct guardrail_usage, reserve)", layout::usage::RESERVE as u64),
    ("sizeof(((struct guardrail_usage *)0)->reserve)", 8),
    ("offsetof(struct guardrail_usage, conflicts)", layout::usage::CONFLICTS as u64),
    ("sizeof(((struct guardrail_usage *)0)->conflicts)", 8),
    ("offsetof(struct guardrail_usage, records)", layout::usage::RECORDS as u64),
    ("sizeof(((struct guardrail_usage *)0)->records)", 8),
    ("offsetof(struct guardrail_usage, inside)", layout::usage::INSIDE as u64),
    ("sizeof(((struct guardrail_usage *)0)->inside)", 8),
    ("offsetof(struct guardrail_usage, masks)", layout::usage::MASKS as u64),
    ("sizeof(((struct guardrail_usage *)0)->masks)", 8),
];
