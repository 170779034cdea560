package probe

// stop ends the run that is going on, from the tracer thread.
func (s *engine) stop() {
	s.stopping = true
	s.endRun()
}

// endRun has Run return soon. Any goroutine may call it.
func (s *engine) endRun() {
	if cancel := s.cancel.Load(); cancel != nil {
		(*cancel)()
	}
}

// endFrom ends the run from the goroutine that reads hits. sinkMu is held.
func (s *engine) endFrom(err error) {
	if s.ended {
		return
	}
	s.ended, s.endErr = true, err
	s.endRun()
}
