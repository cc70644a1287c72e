//! Attempts to leave the sandbox: threats S2, S3 and S6, and row 85.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::Command;

use crate::child::{child, said};
use crate::support::{Folder, Tier, Victim, output, shells, unique_sleep};

/// Tries all ways to a server, and prints which of them were open.
const CONNECT: &str = r"
import socket, sys
tcp, udp, path, abstract = sys.argv[1:]
def attempt(name, family, kind, address):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(5)
            s.connect(address) if kind != socket.SOCK_DGRAM else s.sendto(b'x', address)
            print('reached', name)
    except OSError as error:
        print('stopped', name)
attempt('tcp', socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', int(tcp)))
attempt('udp', socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', int(udp)))
attempt('unix', socket.AF_UNIX, socket.SOCK_STREAM, path)
attempt('datagram', socket.AF_UNIX, socket.SOCK_DGRAM, path + '.datagram')
attempt('abstract', socket.AF_UNIX, socket.SOCK_STREAM, '\0' + abstract)
try:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.sendto(b'x', path + '.datagram')
    print('reached pair')
except OSError:
    print('stopped pair')
a, b = socket.socketpair()
a.send(b'x')
print('works', b.recv(1))
try:
    socket.getaddrinfo('localhost.invalid', 80)
except OSError:
    pass
";

#[tokio::test]
async fn fault_85_there_is_no_network_unless_it_is_granted_and_no_socket_of_another_program() {
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for (tier, folder, shell) in shells("85", &Tier::SANDBOXES).await {
        let path = folder.outside("socket");
        let _unix = UnixListener::bind(&path).unwrap();
        let datagram = UnixDatagram::bind(folder.outside("socket.datagram")).unwrap();
        let name = format!("agentouto-{}-{tier:?}", std::process::id());
        let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        fs::write(folder.root().join("connect.py"), CONNECT).unwrap();
        let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
        let command = format!("python3 connect.py {tcp_port} {udp_port} {} {name}", path.display());
        udp.set_nonblocking(true).unwrap();
        datagram.set_nonblocking(true).unwrap();
        let local = "stopped unix\nstopped datagram\nstopped abstract\nstopped pair\nworks b'x'\n";
        let text = output(&shell, &command).await;
        assert!(text.starts_with("stopped tcp\n") && text.ends_with(local), "{tier:?}: {text}");
        assert!(udp.recv(&mut [0]).is_err() && datagram.recv(&mut [0]).is_err(), "{tier:?}");
        let text = output(&shell.allow_network(), &command).await;
        assert_eq!(text, format!("reached tcp\nreached udp\n{local}"), "{tier:?}");
        assert!(udp.recv(&mut [0]).is_ok() && datagram.recv(&mut [0]).is_err(), "{tier:?}");
    }
}

#[tokio::test]
async fn what_a_command_was_not_given_it_cannot_read_or_write() {
    for (tier, folder, shell) in shells("S2", &Tier::SANDBOXES).await {
        let (secret, given, shared) = (folder.outside("secret"), folder.outside("given"), folder.outside("shared"));
        fs::write(&secret, "SECRET").unwrap();
        fs::create_dir_all(&given).unwrap();
        fs::create_dir_all(&shared).unwrap();
        fs::write(given.join("text"), "given").unwrap();
        let shell = shell.read_only(&given).writable(&shared).read_only(folder.outside("missing"));
        let (secret_path, given_path, shared_path) = (secret.display(), given.display(), shared.display());
        for command in [
            format!("cat {secret_path}"),
            format!("cat /proc/1/root{secret_path} /proc/{}/root{secret_path}", std::process::id()),
            format!("ln -s {secret_path} l; cat l; ln {secret_path} h; cat h; cp -a {secret_path} c; cat c"),
            "cat /etc/shadow /etc/ssh/ssh_host_* /root/.bashrc /root/.profile /etc/ssl/private/*".to_owned(),
            "cat /var/lib/dpkg/status; ls /home /root /run /var /opt /boot".to_owned(),
            "cat /proc/kcore | head -c 10; cat /dev/mem /dev/kmem /dev/vda /dev/sda | head -c 10".to_owned(),
            format!("echo x > {given_path}/new; echo x > {secret_path}; mkdir {given_path}/d; rm {given_path}/text"),
            "echo x > /usr/bin/x; echo x > /etc/passwd; touch /x /bin/x".to_owned(),
            "mkdir /dev/d; echo x > /dev/x; echo x > /sys/x".to_owned(),
        ] {
            let text = output(&shell, &format!("exec 2>/dev/null\n{command}")).await;
            assert!(text.starts_with("(no output)") || text.trim() == "Exit code: 1", "{tier:?} {command}: {text}");
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "SECRET");
        assert_eq!(fs::read_dir(&given).unwrap().count(), 1);
        let text =
            output(&shell, &format!("cat {given_path}/text; echo y > {shared_path}/y; mktemp > /dev/null && echo ok"))
                .await;
        assert_eq!(text, "givenok\n", "{tier:?}");
        assert_eq!(fs::read_to_string(shared.join("y")).unwrap(), "y\n", "{tier:?}");
    }
}

/// Calls of the system that no sandbox lets pass. Each line prints its name if it succeeds.
const SYSTEM_CALLS: &str = r"
import ctypes, os, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
host = int(sys.argv[1])
x86 = platform.machine() == 'x86_64'
def attempt(name, number, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(number, *arguments) >= 0:
        print('possible:', name)
new_user = 0x10000000
attempt('unshare', 272 if x86 else 97, new_user)
attempt('io_uring', 425, 8, ctypes.create_string_buffer(256))
attempt('keyctl', 250 if x86 else 219, 0, -3, 0)
attempt('add_key', 248 if x86 else 217, b'user', b'a', b'b', 1, -3)
attempt('bpf', 321 if x86 else 280, 0, ctypes.create_string_buffer(128), 128)
attempt('userfaultfd', 323 if x86 else 282, 1)
attempt('perf', 298 if x86 else 241, ctypes.create_string_buffer(128), 0, -1, -1, 0)
attempt('mount', 165 if x86 else 40, b'none', b'.', b'tmpfs', 0, None)
attempt('remount', 165 if x86 else 40, b'none', b'/usr', None, 0x1020, None)
attempt('chroot', 161 if x86 else 51, b'.')
attempt('setuid mode', 268 if x86 else 53, -100, b'plain', 0o4755)
attempt('setuid file', 257 if x86 else 56, -100, b'created', os.O_CREAT | os.O_WRONLY, 0o4755)
attempt('setuid openat2', 437, -100, b'created', (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)
attempt('device', 259 if x86 else 33, -100, b'device', 0o20666, (1 << 8) | 1)
attempt('setns', 308 if x86 else 268, 0, 0)
attempt('ptrace', 101 if x86 else 117, 16, host, 0, 0)
attempt('kill', 62 if x86 else 129, host, 0)
attempt('pidfd', 424, os.open('/dev/null', 0), 0, None, 0)
attempt('prlimit', 302 if x86 else 261, host, 7, ctypes.create_string_buffer(16), None)
attempt('priority', 141 if x86 else 140, 0, host, 10)
libc.syscall(141 if x86 else 140, 2, 0, 10)
attempt('affinity', 203 if x86 else 122, host, 8, ctypes.create_string_buffer(b'\x01' + b'\0' * 7))
attempt('pivot_root', 155 if x86 else 41, b'.', b'.')
attempt('reboot', 169 if x86 else 142, 0, 0, 0, None)
attempt('hostname', 170 if x86 else 161, b'x', 1)
attempt('settime', 227 if x86 else 112, 0, ctypes.create_string_buffer(16))
if x86:
    X32 = 0x40000000
    attempt('x32 keyctl', X32 | 250, 0, -3, 0)
    attempt('x32 unshare', X32 | 272, new_user)
for name in ['mem', 'environ', 'maps', 'fd', 'root/etc/passwd', 'cwd/x']:
    try:
        path = f'/proc/{host}/{name}'
        os.listdir(path) if name == 'fd' else open(path, 'rb').read(1)
        print('possible:', path)
    except OSError:
        pass
for path in ['/proc/sys/kernel/core_pattern', '/proc/sys/vm/drop_caches', '/proc/sysrq-trigger', '/proc/sys/kernel/hostname']:
    try:
        os.close(os.open(path, os.O_WRONLY))
        print('possible: write', path)
    except OSError:
        pass
print('done')
";

#[tokio::test]
async fn system_calls_that_reach_beyond_the_sandbox_fail() {
    for (tier, folder, shell) in shells("S2", &Tier::SANDBOXES).await {
        let victim = unique_sleep();
        let mut host = Victim(Command::new("sh").args(["-c", &format!("exec {victim}")]).spawn().unwrap());
        fs::write(folder.root().join("calls.py"), SYSTEM_CALLS).unwrap();
        fs::write(folder.root().join("plain"), "").unwrap();
        let nice =
            || fs::read_to_string(format!("/proc/{}/stat", host.0.id())).unwrap().split(' ').nth(18).map(str::to_owned);
        let before = nice();
        let text = output(&shell, &format!("python3 calls.py {}", host.0.id())).await;
        assert_eq!(nice(), before, "{tier:?}");
        assert_eq!(text, "done\n", "{tier:?}");
        for file in fs::read_dir(folder.root()).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o6000, 0, "{tier:?}");
        }
        assert_eq!(host.0.try_wait().unwrap(), None, "{tier:?}");
    }
}

#[tokio::test]
async fn setuid_programs_give_no_rights_and_capabilities_are_gone() {
    for (tier, _folder, shell) in shells("S2", &Tier::SANDBOXES).await {
        let command = "python3 -c \"import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))\"; \
                       su nobody -s /bin/sh -c id 2>&1 | grep uid; chown 1:1 . 2>/dev/null && echo chowned; \
                       unshare -Ur id 2>/dev/null; mount -t tmpfs none /tmp 2>/dev/null && echo mounted";
        assert_eq!(output(&shell, command).await.lines().next(), Some("1"), "{tier:?}: no_new_privs");
        let text = output(&shell, command).await;
        assert!(!text.contains("uid=") && !text.contains("ed\n"), "{tier:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_at_once_cannot_reach_each_other() {
    for (tier, folder, shell) in shells("S2", &Tier::SANDBOXES).await {
        let sleep = unique_sleep();
        let other = shell.clone();
        let first = format!("touch begun; exec {sleep}");
        let first = tokio::spawn(async move { output(&other, &first).await });
        crate::support::until("the begin", || folder.root().join("begun").exists()).await;
        crate::support::until("the process", || !crate::support::processes_with(&sleep).is_empty()).await;
        let ids = crate::support::processes_with(&sleep).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let text =
            output(&shell, &format!("for id in {ids}; do kill -9 $id 2>/dev/null && echo killed; done; echo done"))
                .await;
        assert_eq!(text, "done\n", "{tier:?}");
        assert!(!crate::support::processes_with(&sleep).is_empty(), "{tier:?}");
        first.abort();
    }
}

#[tokio::test]
async fn a_command_inherits_no_file_of_the_service() {
    let folder = Folder::new();
    let secret = folder.outside("secret");
    fs::File::create(&secret).unwrap().write_all(b"INHERITED").unwrap();
    let text = said(child("child::has_a_file_without_cloexec").env("ROOT", folder.root()).env("SECRET", &secret));
    assert!(text.contains("BARE[INHERITED]"), "an ordinary child has it: {text}");
    for part in text.split("BARE[INHERITED]").skip(1) {
        assert!(!part.contains("INHERITED"), "{text}");
    }
}

#[tokio::test]
async fn a_command_cannot_end_its_guard_nor_fill_memory_files_without_end() {
    for (tier, _folder, shell) in shells("S2", &Tier::SANDBOXES).await {
        let sleep = unique_sleep();
        let text = output(&shell, &format!("({sleep} &); trap '' TERM; kill -TERM 0; kill -HUP 0; echo alive")).await;
        assert!(
            text == "alive\n" || text.contains("Exit code: 143") || text.contains("Exit code: 129"),
            "{tier:?}: {text}"
        );
        crate::support::assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
        if tier == Tier::Bubblewrap {
            let fill = "for f in /tmp/f /dev/shm/f; do head -c 1G /dev/zero > $f; du -k $f | cut -f1; done 2>/dev/null";
            assert_eq!(output(&shell.max_memory_bytes(64 << 20), fill).await, "16384\n16384\n");
        }
    }
}

#[tokio::test]
async fn the_files_of_a_command_are_of_the_service_and_its_temporary_folder_is_gone() {
    for (tier, folder, shell) in shells("S2", &Tier::SANDBOXES).await {
        let text = output(&shell, "echo x > mine; mkdir -p $TMPDIR/a/b; ln -s / $TMPDIR/root; echo $TMPDIR").await;
        assert_eq!(
            fs::metadata(folder.root().join("mine")).unwrap().uid(),
            rustix::process::getuid().as_raw(),
            "{tier:?}"
        );
        let temporary = text.trim().to_owned();
        crate::support::until("the removal", || temporary == "/tmp" || !fs::exists(&temporary).unwrap()).await;
        assert!(fs::exists("/usr").unwrap());
    }
}
