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
