//! The files of the system that every sandboxed command can read.
//!
//! No home folder, nothing of `/run`, `/var` or `/opt`, and of `/etc` only what programs need and everyone may know: a
//! command of a service that runs as root must not read `/etc/shadow` or the keys of the machine.

/// Programs and libraries. Some are symlinks.
pub(super) const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/run/current-system"];

/// Configuration.
pub(super) const CONFIGURATION: [&str; 43] = [
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/ethertypes",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/magic.mime",
    "/etc/mailcap",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/profile",
    "/etc/protocols",
    "/etc/redhat-release",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/static",
    "/etc/terminfo",
    "/etc/timezone",
];

/// Devices that hold nothing.
pub(super) const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// General facts of the machine, where `/proc` itself must not be visible.
pub(super) const FACTS: [&str; 12] = [
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
];
