package engine

// stop ends the current run: no more hits are taken. Only the tracer's thread may call it.
func (s *Engine) stop() {
	s.Stopping = true
	s.endRun()
}

// endRun makes Run return soon. Any goroutine may call it.
func (s *Engine) endRun() {
	if cancel := s.Cancel.Load(); cancel != nil {
		(*cancel)()
	}
}
