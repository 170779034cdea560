package engine

// stop ends the run that is going on, from the tracer thread.
func (s *Engine) stop() {
	s.Stopping = true
	s.endRun()
}

// endRun has Run return soon. Any goroutine may call it.
func (s *Engine) endRun() {
	if cancel := s.Cancel.Load(); cancel != nil {
		(*cancel)()
	}
}
