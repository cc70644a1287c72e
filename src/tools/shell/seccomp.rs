//! Filters of system calls, as <https://docs.kernel.org/userspace-api/seccomp_filter.html> has them.
//!
//! They close what namespaces and Landlock leave open. They list what is refused: a list of what is allowed would break
//! with every new libc. Calls of another architecture end the process; those of the x32 ABI are refused as well.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq, Ne};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

/// A list of refused calls.
#[derive(Default)]
struct Refused(BTreeMap<i64, Vec<SeccompRule>>);

impl Refused {
    /// Refuses a call with any arguments.
    fn always(mut self, calls: impl IntoIterator<Item = c_long>) -> Self {
        for call in calls {
            numbers(call).for_each(|number| drop(self.0.insert(number, Vec::new())));
        }
        self
    }

    /// Refuses a call if all conditions hold. Several rules for one call are alternatives.
    fn when(mut self, call: c_long, conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<Self, seccompiler::BackendError> {
        for number in numbers(call) {
            let conditions = conditions
                .iter()
                .map(|(argument, operator, value)| SeccompCondition::new(*argument, Dword, operator.clone(), *value))
                .collect::<Result<_, _>>()?;
            self.0.entry(number).or_default().push(SeccompRule::new(conditions)?);
        }
        Ok(self)
    }

    fn compile(self, errno: i32) -> Result<BpfProgram, seccompiler::BackendError> {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        SeccompFilter::new(self.0, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?.try_into()
    }
}

/// Returns the numbers of a call: its own, and on x86-64 that of the x32 ABI.
fn numbers(call: c_long) -> impl Iterator<Item = i64> {
    const X32: i64 = 0x4000_0000;
    let x32 = if cfg!(target_arch = "x86_64") { Some(X32 | x32_number(call)) } else { None };
    std::iter::once(call).chain(x32)
}

/// A few calls have a number of their own in the x32 ABI.
fn x32_number(call: c_long) -> i64 {
    match call {
        libc::SYS_ioctl => 514,
        libc::SYS_kexec_load => 528,
        call => call,
    }
}

/// The filter of every sandbox. Its calls fail as on a kernel without them, so that programs do without.
///
/// Refused: new user namespaces, the kernel's keyrings (which outlive a call and hold keys of others), `io_uring`
/// (which passes other filters), setuid bits, and interfaces with a history of holes in the kernel. `local_sockets`:
/// whether sockets of the local machine may be opened.
pub(super) fn for_all(local_sockets: LocalSockets) -> Result<BpfProgram, seccompiler::BackendError> {
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    let new_user = libc::CLONE_NEWUSER.unsigned_abs().into();
    let refused = Refused::default()
        .always([libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_request_key])
        .always([libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register])
        .always([libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_kexec_load])
        // Its flags are in memory. The C library falls back to `clone`.
        .always([libc::SYS_clone3, libc::SYS_setns])
        .when(libc::SYS_clone, &[(0, MaskedEq(new_user), new_user)])?
        .when(libc::SYS_unshare, &[(0, MaskedEq(new_user), new_user)])?
        .when(libc::SYS_ioctl, &[(1, Eq, TIOCSTI)])?
        .when(libc::SYS_ioctl, &[(1, Eq, TIOCLINUX)])?;
    let refused = match local_sockets {
        LocalSockets::Allowed => refused,
        LocalSockets::Refused => without_local_sockets(refused)?,
    };
    without_setuid_bits(refused)?.compile(libc::ENOSYS)
}

/// Whether a command may open sockets of the local machine (`AF_UNIX`).
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LocalSockets {
    /// It reaches only its own, in a network namespace of its own.
    Allowed,
    Refused,
}

/// Refuses sockets that could be connected to another program. A connected pair of streams stays possible.
fn without_local_sockets(refused: Refused) -> Result<Refused, seccompiler::BackendError> {
    const TYPE: u64 = 0xf;
    let datagram = u64::from(libc::SOCK_DGRAM.unsigned_abs());
    refused
        .when(libc::SYS_socket, &[(0, Eq, libc::AF_UNIX.unsigned_abs().into())])?
        .when(libc::SYS_socketpair, &[(1, MaskedEq(TYPE), datagram)])
}

/// The filter for processes that share all namespaces with the service. Its calls fail for lack of rights.
///
/// Refused: every socket but those of the Internet, and these too unless `allows_network`; what changes other processes
/// of the same user; shared memory and queues of System V; changes of owners and extended attributes, which Landlock
/// does not know; and leaving the process `group`, so that one signal ends all.
pub(super) fn for_shared_namespaces(allows_network: bool, group: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let refused = Refused::default()
        .always([libc::SYS_setsid])
        .when(libc::SYS_setpgid, &[(0, Ne, 0)])?
        .when(libc::SYS_setpgid, &[(1, Ne, group.unsigned_abs().into())])?
        .always([libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl])
        .always([libc::SYS_semget, libc::SYS_semctl, libc::SYS_semop, libc::SYS_semtimedop])
        .always([libc::SYS_msgget, libc::SYS_msgctl, libc::SYS_msgsnd, libc::SYS_msgrcv])
        .always([libc::SYS_mq_open, libc::SYS_mq_unlink])
        .always([libc::SYS_fchownat, libc::SYS_setxattr, libc::SYS_lsetxattr])
        .always([libc::SYS_removexattr, libc::SYS_lremovexattr, SYS_SETXATTRAT, SYS_REMOVEXATTRAT])
        .always([libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot]);
    #[cfg(target_arch = "x86_64")]
    let refused = refused.always([libc::SYS_chown, libc::SYS_lchown]);
    let refused = sockets(own_process_only(refused)?, allows_network)?;
    refused.compile(libc::EPERM)
}

// The `libc` crate has no names for these yet.
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;
const SYS_FCHMODAT2: c_long = 452;

/// Refuses to change limits, priorities and processors of another process by its number.
fn own_process_only(refused: Refused) -> Result<Refused, seccompiler::BackendError> {
    const IOPRIO_WHO_PROCESS: u64 = 1;
    refused
        .when(libc::SYS_prlimit64, &[(0, Ne, 0)])?
        .when(libc::SYS_sched_setaffinity, &[(0, Ne, 0)])?
        .when(libc::SYS_sched_setattr, &[(0, Ne, 0)])?
        .when(libc::SYS_sched_setparam, &[(0, Ne, 0)])?
        .when(libc::SYS_sched_setscheduler, &[(0, Ne, 0)])?
        .when(libc::SYS_setpriority, &[(0, Ne, 0)])?
        .when(libc::SYS_setpriority, &[(1, Ne, 0)])?
        .when(libc::SYS_ioprio_set, &[(0, Ne, IOPRIO_WHO_PROCESS)])?
        .when(libc::SYS_ioprio_set, &[(1, Ne, 0)])
}

/// Refuses setuid and setgid bits: a service that runs as root would else leave programs with its rights beneath the
/// root.
fn without_setuid_bits(mut refused: Refused) -> Result<Refused, seccompiler::BackendError> {
    let create = u64::from(libc::O_CREAT.unsigned_abs());
    let creates = |argument| (argument, MaskedEq(create), create);
    for bit in [libc::S_ISUID, libc::S_ISGID].map(u64::from) {
        let has_bit = |argument| (argument, MaskedEq(bit), bit);
        refused = refused
            .when(libc::SYS_fchmod, &[has_bit(1)])?
            .when(libc::SYS_fchmodat, &[has_bit(2)])?
            .when(SYS_FCHMODAT2, &[has_bit(2)])?
            .when(libc::SYS_mknodat, &[has_bit(2)])?
            .when(libc::SYS_openat, &[creates(2), has_bit(3)])?;
        #[cfg(target_arch = "x86_64")]
        {
            refused = refused
                .when(libc::SYS_chmod, &[has_bit(1)])?
                .when(libc::SYS_mknod, &[has_bit(1)])?
                .when(libc::SYS_creat, &[has_bit(1)])?
                .when(libc::SYS_open, &[creates(1), has_bit(2)])?;
        }
    }
    // Its mode is in memory. Programs fall back to `openat`.
    Ok(refused.always([libc::SYS_openat2]))
}

fn sockets(refused: Refused, allows_network: bool) -> Result<Refused, seccompiler::BackendError> {
    let refused = without_local_sockets(refused)?;
    if !allows_network {
        return Ok(refused.always([libc::SYS_socket]));
    }
    let internet = [libc::AF_INET, libc::AF_INET6].map(|family| (0, Ne, family.unsigned_abs().into()));
    refused.when(libc::SYS_socket, &internet)
}

/// Returns the filter as bytes, as `bwrap --seccomp` reads it.
pub(super) fn bytes(filter: &BpfProgram) -> Vec<u8> {
    filter
        .iter()
        .flat_map(|step| {
            let [code, k] = [step.code.to_ne_bytes().to_vec(), step.k.to_ne_bytes().to_vec()];
            [code, vec![step.jt, step.jf], k].concat()
        })
        .collect()
}
