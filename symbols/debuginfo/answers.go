package debuginfo

import "sync"

// answers caches the answers to questions, because many definitions ask the same. When a list of
// answers would get longer than maxAnswers elements, it is emptied. The zero value is empty.
// answers is safe for concurrent use.
type answers[Q comparable, A any] struct {
	mu   sync.Mutex
	kept map[Q][]A
	cost int
}

// maxAnswers limits what is kept for one kind of question: elements of answers, and a few more
// for each question.
const maxAnswers = 1 << 16

// perQuestion is how many elements a question itself counts as.
const perQuestion = 4

// get returns the cached answer, or the one that ask finds. It is shared and must not be changed.
func (a *answers[Q, A]) get(q Q, ask func() []A) []A {
	a.mu.Lock()
	list, ok := a.kept[q]
	a.mu.Unlock()
	if ok {
		return list
	}
	list = ask() // without the lock, because it may take long, and may ask other questions
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

// first is get for questions with at most one answer.
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
