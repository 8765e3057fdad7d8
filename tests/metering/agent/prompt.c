/* Preloaded into a test cluster's slurmdbd: sends each piece of an answer at once, and says at once
 * that a piece came. Slurm writes a message in several pieces, and by default either side waits up
 * to 40 ms for the other between two of them: half a second for each command of sacctmgr. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static void set(int fd, int option)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, option, &on, sizeof on);
}

int accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    int (*real)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
    int made = real(fd, from, size, flags);
    if (made >= 0)
        set(made, TCP_NODELAY);
    return made;
}

int accept(int fd, struct sockaddr *from, socklen_t *size)
{
    return accept4(fd, from, size, 0);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    int (*real)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    for (nfds_t each = 0; each < count; each++)
        set(fds[each].fd, TCP_QUICKACK);
    return real(fds, count, timeout);
}
