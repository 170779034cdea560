package mailbox

import (
	"errors"

	"kprobe/probe/ring"
)

// Serve answers the request in a mailbox, if there is one: by refuse's answer to what
// may says, or to a request that is damaged, else by what do answers. Its error says
// that the answer couldn't be given, to r.
func Serve(box *ring.Mailbox, may func() error, do func(r *ring.Request) []byte, refuse func(error) []byte) (r *ring.Request, err error) {
	r, err = box.Next()
	if r == nil {
		return nil, nil
	}
	if err == nil {
		err = may()
	}
	if err != nil {
		return r, box.Answer(r.ID, refuse(err))
	}
	return r, box.Answer(r.ID, do(r))
}

// MayAsk says why a session of processes of these owners takes no requests by the
// mailboxes in their memory, for a kprobe of the user self. One process alone could do
// to itself all that it can ask for; of several, one could have the others probed with
// rights that it hasn't, unless kprobe has no more.
func MayAsk(owners []uint32, self uint32) error {
	for _, o := range owners {
		switch {
		case o != owners[0]:
			return errors.New("the trace has processes of several users: it takes no requests")
		case o != self && len(owners) > 1:
			return errors.New("the trace has several processes, of another user than kprobe's own, and one of them could ask for probes in the others: it takes no requests")
		}
	}
	return nil
}
