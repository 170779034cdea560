package spread

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCells says that cells are next to each other, without gap or overlap,
// up to the largest number, and narrow.
func TestCells(t *testing.T) {
	next := uint64(0)
	for i := 0; ; i++ {
		from, to := cellRange(i)
		if from != next || to < from || cellOf(from) != i || cellOf(to) != i {
			t.Fatalf("cell %d is %d to %d, its ends are in cells %d and %d; it should begin at %d", i, from, to, cellOf(from), cellOf(to), next)
		}
		if (to-from)/2 > from/128 {
			t.Fatalf("cell %d, %d to %d, is wider than 1/64", i, from, to)
		}
		if to == 1<<64-1 {
			return
		}
		next = to + 1
	}
}

// TestSpread compares with sorted numbers: count, ends and average exactly,
// percentiles within 1/128.
func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 99, 100, 101, 5000} {
		var all, left, right Spread
		var nums []uint64
		sum := uint64(0)
		for range n {
			v := rng.Uint64() >> (12 + rng.IntN(50))
			nums = append(nums, v)
			sum += v
			all.Add(v)
			if v&1 == 0 {
				left.Add(v)
			} else {
				right.Add(v)
			}
		}
		left.Merge(&right)
		slices.Sort(nums)
		for _, s := range []*Spread{&all, &left} {
			if s.Count != uint64(n) || s.Sum != sum || s.Min != nums[0] || s.Max != nums[n-1] || s.Average() != (sum+uint64(n)/2)/uint64(n) {
				t.Errorf("%d numbers: %d, sum %d, %d to %d, average %d", n, s.Count, s.Sum, s.Min, s.Max, s.Average())
			}
			for _, p := range []uint64{1, 50, 99, 100} {
				want := nums[(n*int(p)+99)/100-1]
				got := s.Percentile(p)
				if diff := max(got, want) - min(got, want); diff > want/128 {
					t.Errorf("%d numbers: p%d is %d, want %d", n, p, got, want)
				}
			}
			checkPowers(t, s, nums)
		}
	}
}

func checkPowers(t *testing.T, s *Spread, nums []uint64) {
	t.Helper()
	i := 0
	steps := s.Powers()
	for j, p := range steps {
		if j > 0 && p.From != steps[j-1].To+1 {
			t.Fatalf("the step from %d follows that to %d", p.From, steps[j-1].To)
		}
		for ; i < len(nums) && nums[i] <= p.To; i++ {
			if nums[i] < p.From {
				t.Fatalf("%d is below the step from %d", nums[i], p.From)
			}
			p.Count--
		}
		if p.Count != 0 {
			t.Errorf("the step %d to %d has %d too many", p.From, p.To, int64(p.Count))
		}
	}
	if i != len(nums) || steps[0].Count == 0 || steps[len(steps)-1].Count == 0 {
		t.Errorf("%d of %d numbers are in the steps %v", i, len(nums), steps)
	}
}

func TestEmptySpread(t *testing.T) {
	var s, other Spread
	s.Merge(&other)
	if s.Average() != 0 || s.Percentile(50) != 0 || len(s.Powers()) != 0 {
		t.Errorf("%+v, p50 %d", s, s.Percentile(50))
	}
	s.Add(0)
	if p := s.Powers(); s.Percentile(99) != 0 || len(p) != 1 || p[0] != (Power{0, 0, 1}) {
		t.Errorf("of one zero: p99 %d, steps %v", s.Percentile(99), s.Powers())
	}
}

func TestGrow(t *testing.T) {
	var s Spread
	s.Add(5)
	s.Grow(5, 1000)
	if s.Count != 1 || s.Sum != 1000 || s.Min != 1000 || s.Max != 1000 || s.Percentile(50) != 1000 {
		t.Errorf("one number: %+v", s)
	}
	s.Add(7)
	s.Add(9)
	s.Grow(7, 2000)
	if s.Count != 3 || s.Sum != 3009 || s.Min != 9 || s.Max != 2000 || s.Percentile(1) != 9 {
		t.Errorf("three numbers: %d, sum %d, %d to %d", s.Count, s.Sum, s.Min, s.Max)
	}
}
