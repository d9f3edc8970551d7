"""Names in the file system in memory: they are made, linked, renamed and removed, with Linux's refusals."""

from __future__ import annotations

import errno
import stat

from histories.memory_open import Opener
from histories.memory_tree import Inode, fail, is_below


class Names(Opener):
    """Calls that change directories."""

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self.pass_gate("mkdir", path)
        parent, name, inode = self._find(path.rstrip("/") or path, dir_fd, follow=False)  # mkdir("a/") makes a
        if inode is not None:
            raise fail(errno.EEXIST, path)
        made = parent.volume.create(parent, name, stat.S_IFDIR | (mode & ~self.umask & 0o1777))
        self._tell("mkdir", parent, name, made)

    def symlink(self, target: str, path: str, *, dir_fd: int | None = None) -> None:
        self.pass_gate("symlink", path)
        parent, name, inode = self._find(path, dir_fd, follow=False)
        if inode is not None:
            raise fail(errno.EEXIST, path)
        made = parent.volume.create(parent, name, stat.S_IFLNK | 0o777)
        made.target = target
        self._tell("symlink", parent, name, made)

    def rmdir(self, path: str, *, dir_fd: int | None = None) -> None:
        self.pass_gate("rmdir", path)
        parent, name, inode = self._existing(path.rstrip("/") or path, dir_fd, follow=False)
        if not name:
            last = path.rstrip("/").rsplit("/", 1)[-1]
            raise fail({".": errno.EINVAL, "..": errno.ENOTEMPTY}.get(last, errno.EBUSY), path)
        inode.volume.writable()
        if not inode.is_directory:
            raise fail(errno.ENOTDIR, path)
        self._unmounted(parent, name, path)
        if inode.children:
            raise fail(errno.ENOTEMPTY, path)
        self._tell("rmdir", parent, name, inode)
        parent.volume.detach(parent, name)
        inode.nlink = 0
        inode.release()

    def _unmounted(self, parent: Inode, name: str, path: str) -> None:
        if (parent.children or {})[name].mounted is not None:
            raise fail(errno.EBUSY, path)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        self.pass_gate("unlink", path)
        parent, name, inode = self._existing(path.rstrip("/") or path, dir_fd, follow=False)
        if inode.is_directory:
            raise fail(errno.EISDIR, path)
        if path.endswith("/"):
            raise fail(errno.ENOTDIR, path)
        inode.volume.writable()
        self._tell("unlink", parent, name, inode)
        self._unlink(parent, name, inode)

    remove = unlink

    def _unlink(self, parent: Inode, name: str, inode: Inode) -> None:
        parent.volume.detach(parent, name)
        inode.nlink -= 1
        inode.ctime = inode.volume.now()
        inode.release()

    def link(
        self,
        src: str,
        dst: str,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self.pass_gate("link", (src, dst))
        # Python calls plain link(2), which follows nothing, unless a descriptor is given.
        follow = follow_symlinks and (src_dir_fd is not None or dst_dir_fd is not None)
        _, _, inode = self._existing(src, src_dir_fd, follow=follow)
        parent, name, taken = self._find(dst, dst_dir_fd, follow=False)
        if taken is not None:
            raise fail(errno.EEXIST, dst)
        if dst.endswith("/"):
            raise fail(errno.ENOENT, dst)
        if parent.volume is not inode.volume:
            raise fail(errno.EXDEV, dst)
        parent.volume.writable()
        if parent.nlink == 0:
            raise fail(errno.ENOENT, dst)
        if inode.is_directory or not parent.volume.has_links:
            raise fail(errno.EPERM, src)
        parent.volume.attach(parent, name, inode)
        inode.nlink += 1
        inode.ctime = inode.volume.now()
        self._tell("link", parent, name, inode)

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self.pass_gate("rename", (src, dst))
        old_parent, old_name, inode = self._find(src, src_dir_fd, follow=False)
        parent, name, taken = self._find(dst, dst_dir_fd, follow=False)
        if old_parent.volume is not parent.volume:
            raise fail(errno.EXDEV, dst)
        if (inode is not None and not old_name) or (taken is not None and not name):
            raise fail(errno.EBUSY, src)
        if inode is None:
            raise fail(errno.ENOENT, src)
        parent.volume.writable()
        if inode.is_directory and is_below(parent, inode):
            raise fail(errno.EINVAL, dst)
        if taken is not None and taken.is_directory and is_below(old_parent, taken):
            raise fail(errno.ENOTEMPTY, dst)
        if inode is taken:
            return
        if parent.nlink == 0:
            raise fail(errno.ENOENT, dst)
        self._may_replace(inode, taken, dst)
        self._unmounted(old_parent, old_name, src)
        if taken is not None:
            self._unmounted(parent, name, dst)
            if taken.children:
                raise fail(errno.ENOTEMPTY, dst)
            self._replaced(parent, name, taken)
        self._tell("rename", old_parent, old_name, inode)
        parent.volume.detach(old_parent, old_name)
        parent.volume.attach(parent, name, inode)
        inode.ctime = inode.volume.now()
        self._tell("renamed", parent, name, inode)

    def replace(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def _may_replace(self, inode: Inode, taken: Inode | None, dst: str) -> None:
        if taken is None:
            return
        if inode.is_directory and not taken.is_directory:
            raise fail(errno.ENOTDIR, dst)
        if taken.is_directory and not inode.is_directory:
            raise fail(errno.EISDIR, dst)

    def _replaced(self, parent: Inode, name: str, taken: Inode) -> None:
        self._tell("rmdir" if taken.is_directory else "replace", parent, name, taken)
        parent.volume.detach(parent, name)
        taken.nlink = 0 if taken.is_directory else taken.nlink - 1
        taken.release()
