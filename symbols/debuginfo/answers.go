package debuginfo

import "sync"

// answers keep what questions were answered with, as many definitions ask the same.
// They are bounded: where a list of answers would be longer than maxAnswers elements
// it is begun anew. The zero value has none. They are safe for concurrent use.
type answers[Q comparable, A any] struct {
	mu   sync.Mutex
	kept map[Q][]A
	cost int
}

// maxAnswers bounds what is kept of one kind of question: elements of answers, and a
// few more for each question.
const maxAnswers = 1 << 16

// perQuestion is how many elements a question counts as by itself.
const perQuestion = 4

// get gives the answer that is kept, or the one that ask finds. It is shared: nobody
// changes it.
func (a *answers[Q, A]) get(q Q, ask func() []A) []A {
	a.mu.Lock()
	list, ok := a.kept[q]
	a.mu.Unlock()
	if ok {
		return list
	}
	list = ask() // without the lock: it may take long, and ask for others
	cost := len(list) + perQuestion
	a.mu.Lock()
	defer a.mu.Unlock()
	if cost > maxAnswers {
		return list
	}
	if a.kept == nil || a.cost+cost > maxAnswers {
		a.kept, a.cost = map[Q][]A{}, 0
	}
	if _, again := a.kept[q]; !again {
		a.cost += cost
	}
	a.kept[q] = list
	return list
}

// first is get for questions with one answer, or none.
func (a *answers[Q, A]) first(q Q, ask func() (A, bool)) (found A, ok bool) {
	list := a.get(q, func() []A {
		if found, ok := ask(); ok {
			return []A{found}
		}
		return nil
	})
	if len(list) == 0 {
		return found, false
	}
	return list[0], true
}
