"""How much of what jobs cost went to hardware that gave them less value than other eligible hardware did."""
