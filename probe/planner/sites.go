package planner

import (
	"cmp"
	"slices"

	"kprobe/probe/plan"
)

// siteRequests are a function's requests by the addresses of their places, in order of address. There are tens of
// thousands of functions with few places each, so one list serves them all.
type siteRequests []siteRequest

// functionSites are the requests of the function that is planned, and one site for each address, in the order in which
// the function has them.
type functionSites struct {
	byAddr siteRequests
	sites  []plan.Site
}

type siteRequest struct {
	at uint64
	ws []Request // empty: they are given up or have their jump
}

// fill makes the lists for a function's requests, in the memory of the last ones.
func (x *functionSites) fill(ws []Request) {
	list, sites := x.byAddr[:0], x.sites[:0]
	for i := range ws {
		a := uint64(ws[i].Site.Addr)
		n, found := slices.BinarySearchFunc(list, a, func(s siteRequest, a uint64) int { return cmp.Compare(s.at, a) })
		if found {
			list[n].ws = append(list[n].ws, ws[i])
			continue
		}
		list = slices.Insert(list, n, siteRequest{a, ws[i : i+1 : i+1]}) // nearly all addresses have one
		sites = append(sites, plan.Site{Addr: a})
	}
	x.byAddr, x.sites = list, sites
}

// at lists the requests for an address.
func (x siteRequests) at(a uint64) []Request {
	if i, ok := x.find(a); ok {
		return x[i].ws
	}
	return nil
}

// take removes the requests for an address from the list, and returns them.
func (x siteRequests) take(a uint64) []Request {
	i, ok := x.find(a)
	if !ok {
		return nil
	}
	ws := x[i].ws
	x[i].ws = nil
	return ws
}

func (x siteRequests) find(a uint64) (int, bool) {
	return slices.BinarySearchFunc(x, a, func(s siteRequest, a uint64) int { return cmp.Compare(s.at, a) })
}

// stageStart is where a stage begins in the displaced instructions, and the requests that it serves.
type stageStart struct {
	at    uint64
	sites []Request
}

// stagesOf appends the stages of a jump to starts: one begins at each site, and at the first byte. others are
// requests that need none.
func (o *planner) stagesOf(p *plan.Patch, byAddr siteRequests, starts []stageStart) (list []stageStart, others []Request) {
	starts = append(starts, stageStart{at: p.At})
	for _, a := range p.Sites {
		pos := max(a, p.At)
		if last := &starts[len(starts)-1]; last.at == pos && last.sites == nil {
			last.sites = byAddr.at(a)
		} else if last.at == pos {
			last.sites = append(slices.Clip(last.sites), byAddr.at(a)...)
		} else {
			starts = append(starts, stageStart{pos, byAddr.at(a)})
		}
	}
	for i := len(starts) - 1; i >= 0; i-- {
		if oneStage(starts[i].sites) {
			continue
		}
		var parts []stageStart
		staged, more := o.apart(starts[i].sites)
		for _, ws := range staged {
			parts = append(parts, stageStart{starts[i].at, ws})
		}
		others = append(others, more...)
		starts = slices.Replace(starts, i, i+1, parts...)
	}
	return starts, others
}

// wantsOf is a list for the requests that a patch serves. If that is an exit and nothing else, it is there already,
// where the probe's way has it: most patches are such. Otherwise the list is empty.
func (o *planner) wantsOf(p *plan.Patch, byAddr siteRequests) (list []Request, there bool) {
	n := 0
	for _, a := range p.AllSites() {
		n += len(byAddr.at(a))
	}
	if n == 1 && p.Island == nil {
		w := byAddr.at(p.Sites[0])[0]
		if by := o.course(w.P).ByExits; w.Kind == Exit && by != nil {
			if i := slices.Index(by.Exits, w); i >= 0 {
				return by.Exits[i : i+1 : i+1], true
			}
		}
	}
	return make([]Request, 0, n), false
}
